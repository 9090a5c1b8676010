"""For an operator that writes to its arguments, the functional operator that computes what it
writes.

add_(x, y)          add(x, y), then copied into x
add(x, y, out=o)    add(x, y), then copied into o
transpose_(x, …)    x becomes transpose(x, …): nothing is written, the tensor gets other sizes
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.errors import DataDependent
from fusewright.fake_rules.arguments import by_name
from fusewright.formulas.helpers import aten
from fusewright.operators import facts, operator_named
from fusewright.records import record
from fusewright.torch_compat import OpOverload

RENAMED: dict[Any, Any] = {
    aten.normal_.default: aten.normal_functional.default,
    aten.rrelu_with_noise.default: aten.rrelu_with_noise_functional.default,
    aten.rrelu_with_noise_.default: aten.rrelu_with_noise_functional.default,
    aten.__iand__.Scalar: aten.bitwise_and.Scalar,
    aten.__iand__.Tensor: aten.bitwise_and.Tensor,
    aten.__ior__.Scalar: aten.bitwise_or.Scalar,
    aten.__ior__.Tensor: aten.bitwise_or.Tensor,
    aten.__ixor__.Scalar: aten.bitwise_xor.Scalar,
    aten.__ixor__.Tensor: aten.bitwise_xor.Tensor,
    aten.__ilshift__.Scalar: aten.__lshift__.Scalar,
    aten.__ilshift__.Tensor: aten.__lshift__.Tensor,
    aten.__irshift__.Scalar: aten.__rshift__.Scalar,
    aten.__irshift__.Tensor: aten.__rshift__.Tensor,
    aten._batch_norm_with_update.default: aten._batch_norm_with_update_functional.default,
    aten.native_batch_norm.out: None,
}
"""Functional forms that the names do not tell; None: there is none."""


@record
class FunctionalForm:
    """The functional `operator`, and which arguments of the writing one it takes."""

    operator: OpOverload
    names: tuple[str, ...]
    """Argument names of the writing operator, in order."""

    written: tuple[str, ...]
    keeps_written: bool
    """In-place operators read what they write; `out=` operators do not."""

    defaults: Mapping[str, Any]
    """Arguments that only the writing operator lets one leave out, with what they then are."""

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], tuple[Any, ...], dict[str, Any]]:
        """The tensors written to, and the arguments of the functional operator."""
        bound = by_name(self.names, args, kwargs)
        targets = [bound[name] for name in self.written]
        missing = {name: value for name, value in self.defaults.items() if name not in bound}
        kwargs = {**kwargs, **missing}
        if self.keeps_written:
            return targets, args, kwargs
        kept = tuple(
            value for name, value in zip(self.names, args, strict=False) if name not in self.written
        )
        return targets, kept, {name: kwargs[name] for name in kwargs if name not in self.written}


@functools.cache
def functional_form(op: OpOverload) -> FunctionalForm | None:
    """The functional form of a writing operator; None when it has none."""
    arguments = torch_compat.operator_arguments(op)
    names = tuple(argument.name for argument in arguments)
    written = torch_compat.written_arguments(op)
    packet_name = op.overloadpacket.__name__
    in_place = packet_name.endswith("_") and written == ("self",)
    wanted = names if in_place else tuple(name for name in names if name not in written)
    if facts(op).takes_memory:
        return None
    if op in RENAMED:
        operator = RENAMED[op]
    else:
        operator = _overload_taking(op.namespace, packet_name.removesuffix("_"), op, wanted)
    if operator is None:
        return None
    taken = torch_compat.operator_arguments(operator)
    required = {argument.name for argument in taken if not argument.has_default_value()}
    defaults = {
        argument.name: argument.default_value
        for argument in arguments
        if argument.name in required and argument.has_default_value()
    }
    keeps_written = names == tuple(argument.name for argument in taken)
    return FunctionalForm(operator, names, written, keeps_written, defaults)


def has_sizes_of(target: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether an `out=` argument keeps its sizes as it takes a value; False where that depends on
    data: without elements it takes the sizes of the value, also if those have none.
    """
    try:
        return tuple(target.shape) == tuple(value.shape)
    except DataDependent:
        return False


def _overload_taking(
    namespace: str, packet_name: str, op: OpOverload, wanted: tuple[str, ...]
) -> OpOverload | None:
    """The overload of a packet that writes nothing and takes just the arguments `wanted`, same
    types preferred.
    """
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    if packet is None:
        return None
    types = {argument.name: str(argument.type) for argument in torch_compat.operator_arguments(op)}
    candidates: list[tuple[int, OpOverload]] = []
    for name in packet.overloads():
        overload = getattr(packet, name)
        arguments = torch_compat.operator_arguments(overload)
        if torch_compat.written_arguments(overload):
            continue
        if tuple(argument.name for argument in arguments) != wanted:
            continue
        matches = sum(str(argument.type) == types[argument.name] for argument in arguments)
        candidates.append((matches, overload))
    if not candidates:
        return None
    _, closest = max(candidates, key=lambda candidate: candidate[0])
    return closest


def bernoulli(target: torch.Tensor, p: float = 0.5, generator: Any = None) -> torch.Tensor:
    """The values that `bernoulli_` writes to `target`: its draws in the order of memory.
    `bernoulli` draws in the order of elements; other random operators keep the layout that they are
    given.
    """
    if target.is_contiguous():
        return aten.bernoulli.p(target, p, generator=generator)
    order = sorted(range(target.dim()), key=target.stride, reverse=True)
    drawn = aten.bernoulli.p(aten.permute.default(target, order), p, generator=generator)
    return aten.permute.default(drawn, [order.index(dim) for dim in range(target.dim())])


def rebinding_view(op: OpOverload) -> OpOverload | None:
    """The view that an operator such as `transpose_` turns its argument into; None for other
    operators.
    """
    view = facts(op).turns_into
    return operator_named(view) if view else None
