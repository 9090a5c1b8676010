"""Operators whose result depends on the values of tensors: these are known, or the result has sizes
or a value that are symbols of their own.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from fusewright.containers import mapped, tensors
from fusewright.errors import DataDependent
from fusewright.fake.arguments import CPU, faked, result_device
from fusewright.fake.known_values import known_value, run_on_known
from fusewright.fake.tensor import META, FakeTensor
from fusewright.fake_rules import UNKNOWN_RULES, Geometry
from fusewright.fake_rules.trial import geometry_of, is_small, zeros_for
from fusewright.symbolic.nodes import symbolic_int

if TYPE_CHECKING:
    from fusewright.fake.mode import FakeMode

aten = torch.ops.aten


def run_on_values(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators whose result depends on values: possible on known ones alone."""
    values = run_on_known(op, args, kwargs)
    if values is None:
        result = _of_unknown_size(mode, op, args, kwargs)
        if result is not None:
            return result
        raise DataDependent(f"{op} gives a result that depends on the values of a tensor")
    device = result_device(op, args, kwargs)
    return mapped(lambda value: constant(mode, value, device), values)


def compare_whole(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Whether two tensors are equal: known of tensors of different sizes or without elements, and
    of a tensor and itself, unless its elements may be NaN, which equals nothing.
    """
    tensor, other = args
    if tensor.device == other.device:
        if tensor.dim() != other.dim() or any(map(operator.ne, tensor.shape, other.shape)):
            return False
        if (tensor is other and not may_hold_nan(tensor)) or tensor.numel() == 0:
            return True
    return run_on_values(mode, op, args, kwargs)


def _of_unknown_size(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A result whose sizes, or whose value, are symbols of their own; None where that is not
    wanted, or not known.
    """
    if not mode.allows_unknown_sizes:
        return None
    if op is aten._local_scalar_dense.default:
        return _unknown_integer(mode, args[0])
    rule = UNKNOWN_RULES.get(op)
    if rule is None or not mode.of_data.sizes:
        return None
    facts = mode.begin_symbols()
    args, kwargs = faked(mode, args, kwargs)
    geometry = rule(facts, *args, **kwargs)
    if geometry is None:
        return None
    device = result_device(op, args, kwargs)
    if isinstance(geometry, Geometry):
        return mode.make(geometry, device)
    return tuple(mode.make(part, device) for part in geometry)


def _unknown_integer(mode: FakeMode, tensor: torch.Tensor) -> Any:
    """The integer in a tensor, as a symbol; None where that is not wanted, or it is none."""
    if not (mode.of_data.integers and holds_integers(tensor)):
        return None
    facts = mode.begin_symbols()
    number = facts.unknown_size(None)
    mode.integers_read.append(number)
    return symbolic_int(facts, number)


def may_hold_nan(tensor: torch.Tensor) -> bool:
    """Whether an element may be NaN, by the tensor's type."""
    return tensor.is_floating_point() or tensor.is_complex()


def holds_integers(tensor: torch.Tensor) -> bool:
    """Whether an element may become a symbol when a program asks for its value."""
    return not (may_hold_nan(tensor) or tensor.dtype is torch.bool)


def run_on_masks(
    mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], masks: list[Any]
) -> Any:
    """Operators whose result's size depends on `masks`: possible where those are known. Values that
    are lie on the CPU, so that all is tried there.
    """
    args, kwargs = faked(mode, args, kwargs)
    values = {id(tensor): known_value(tensor) for tensor in tensors(args)}
    others = [tensor for tensor in tensors(args) if values[id(tensor)] is None]
    is_known = all(values[id(mask)] is not None for mask in masks)
    if not others or mode.facts or not is_small(others) or not is_known:
        return run_on_values(mode, op, args, kwargs)
    values |= {id(tensor): zeros_for(tensor, CPU) for tensor in others}
    real_args = mapped(lambda tensor: values[id(tensor)], args)
    return mode.make(geometry_of(op(*real_args, **kwargs)), args[0].device)


def masked_select(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The elements where a mask holds."""
    return run_on_masks(mode, op, args, kwargs, [args[1]])


def lift_fresh(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor(…)` has made a real tensor inside torch: a constant, whose value is kept."""
    (tensor,) = args
    if isinstance(tensor, FakeTensor):
        return tensor
    return constant(mode, tensor, tensor.device)


def constant(mode: FakeMode, tensor: torch.Tensor, device: torch.device) -> FakeTensor:
    """A fake made with the value `tensor`."""
    value = tensor.clone()
    meta = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=META)
    fake = mode.wrap(meta, device)
    fake.constant = value if value.device.type == "meta" else value.cpu()
    return fake
