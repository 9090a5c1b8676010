"""Computes on the CPU what a backend of the Python target has no kernel for, and counts it."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.containers import mapped, tensors
from fusewright.opgen.support import check_apart, device_of
from fusewright.torch_compat import (
    OpOverload,
    has_kernel,
    operator_arguments,
    operator_returns,
    run_cpu_kernel,
    written_arguments,
)

aten = torch.ops.aten


class FallBack:
    """Computes on the CPU what a backend has no kernel for, and counts it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How often each operator was computed on the CPU."""

        self.mode = "warn"
        """`warn` names an operator at its first fall-back, `quiet` does not, `error` raises."""

        self._lock = threading.Lock()

    def __call__(self, operator: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Run `operator` on the CPU: inputs moved, what it writes to copied back, the result moved
        back. Views are made of the device's own memory.
        """
        if _returns_view(operator):
            return run_cpu_kernel(operator, *args, **kwargs)
        self._note(operator)
        operator, values = _counterpart(operator, _numbers_as_tensors(operator, args))
        written, read = split_arguments(operator, values, kwargs)
        check_apart(written, read)  # what the CPU is given are copies, which never overlap
        device = device_of(kwargs.get("device"), values, kwargs)
        host = _Host()
        host_args, host_kwargs = host.moved((values, dict(kwargs)))
        if isinstance(kwargs.get("device"), torch.device):
            host_kwargs["device"] = torch.device("cpu")
        result = operator(*host_args, **host_kwargs)
        host.copy_back(*written)
        return host.moved_back(result, device)

    def _note(self, operator: OpOverload) -> None:
        name = str(operator).removesuffix(".default").replace(".", "::", 1)
        if operator in _REQUIRED:
            raise NotImplementedError(f"the backend must provide {name}: all others rest on it")
        if not has_kernel(name.removeprefix("aten::"), "CPU"):
            raise NotImplementedError(f"{name} has no kernel on this device, nor on the CPU")
        with self._lock:
            self.counts[name] += 1
            first = self.counts[name] == 1
        if self.mode == "error":
            raise NotImplementedError(
                f"{name} has no kernel on this device, and falling back to the CPU is off"
            )
        if first and self.mode == "warn":
            warnings.warn(
                f"{name} has no kernel on this device and is computed on the CPU", stacklevel=3
            )


_REQUIRED = (
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten._copy_from.default,
)


def _counterpart(operator: OpOverload, args: Sequence[Any]) -> tuple[OpOverload, Sequence[Any]]:
    """The operator that computes the same on the CPU, and its arguments. torch asks a device from
    outside for convolutions by names under which the CPU has none; and only one of two batch
    norms declares that it writes to the running statistics, and so has them copied back.
    """
    match operator:
        case aten.convolution_overrideable.default:
            return aten.convolution.default, args
        case aten.convolution_backward_overrideable.default:
            gradient, image, weight, *form = args
            channels = weight.size(1) * form[5] if form[3] else weight.size(0)
            return (
                aten.convolution_backward.default,
                [gradient, image, weight, [channels], *form],
            )
        case aten.native_batch_norm.default if args[3] is not None:
            return aten._native_batch_norm_legit.default, args
        case aten.native_batch_norm.out if args[3] is not None:
            return aten._native_batch_norm_legit.out, args
        case _:
            return operator, args


_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def _numbers_as_tensors(operator: OpOverload, args: Sequence[Any]) -> list[Any]:
    """Arguments with a tensor wherever the operator declares one. torch hands a number that stands
    beside a tensor (`x % 2`) on as a number, though most operators take it in no such place.
    """
    values = list(args)
    for position, argument in enumerate(operator_arguments(operator)[: len(values)]):
        number = values[position]
        if type(number) in _NUMBERS and str(argument.type) == "Tensor":
            values[position] = _tensor_beside(number, list(tensors(args))[:1])
    return values


def _tensor_beside(number: complex, others: Sequence[Tensor]) -> Tensor:
    """A scalar tensor that promotes the type of another as a number does."""
    for other in others:
        dtype = torch.result_type(other, number)
        if other.dim() == 0 or dtype != other.dtype:
            return torch.scalar_tensor(number, dtype=dtype)
    return torch.scalar_tensor(number, dtype=_NUMBERS[type(number)])  # in full precision


def split_arguments(
    operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors among an operator's arguments that it writes to, and the others."""
    arguments = operator_arguments(operator)
    named = {argument.name: value for argument, value in zip(arguments, args, strict=False)}
    named.update(kwargs)
    written = written_arguments(operator)
    return (
        list(tensors([named[name] for name in written if name in named])),
        list(tensors([value for name, value in named.items() if name not in written])),
    )


class _Host:
    """Copies of arguments on the CPU, one for each tensor however often it is passed."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}

    def moved(self, values: Any) -> Any:
        return mapped(self._move, values)

    def _move(self, tensor: Tensor) -> Tensor:
        if tensor.device.type == "cpu":
            return tensor
        if id(tensor) not in self._copies:
            self._copies[id(tensor)] = (tensor, tensor.cpu())
        return self._copies[id(tensor)][1]

    def copy_back(self, *written: Tensor) -> None:
        """Copy what an operator wrote to the tensors it was asked to write to."""
        for tensor in written:
            if id(tensor) not in self._copies:
                continue
            copy = self._copies[id(tensor)][1]
            if tensor.size() != copy.size():
                tensor.resize_(copy.size())
            tensor.copy_(copy)

    def moved_back(self, result: Any, device: torch.device) -> Any:
        originals = {id(copy): tensor for tensor, copy in self._copies.values()}
        return mapped(lambda t: originals[id(t)] if id(t) in originals else _to(t, device), result)


def _returns_view(operator: OpOverload) -> bool:
    aliases = (result.alias_info for result in operator_returns(operator))
    return any(alias is not None and not alias.is_write for alias in aliases)


def _to(tensor: Tensor, device: torch.device) -> Tensor:
    copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
    return copy.copy_(tensor)
