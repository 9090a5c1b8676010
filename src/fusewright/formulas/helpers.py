"""Tensors as formulas make them: in the type that eager computes in, filled, summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import at_least_one
from fusewright.ir.dtype import from_torch


class Operator(Protocol):
    """An operator that gives one tensor, which an overload of it names: `aten.sum.dim_IntList`."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Tensor: ...

    def __getattr__(self, overload: str) -> Operator: ...


class Operators(Protocol):
    """A namespace of operators, typed as formulas call them."""

    def __getattr__(self, name: str) -> Operator: ...


aten: Final = cast(Operators, torch.ops.aten)

HALF_TYPES: Final = (torch.float16, torch.bfloat16)


def widened(x: Tensor) -> Tensor:
    """`x` in the type in which eager computes on it: float32 for the half types."""
    return aten._to_copy.default(x, dtype=torch.float32) if x.dtype in HALF_TYPES else x


def rounded(x: Tensor, like: Tensor) -> Tensor:
    """A result computed on `widened(like)` in the type of `like`."""
    return aten._to_copy.default(x, dtype=like.dtype) if like.dtype in HALF_TYPES else x


def to_compare(x: Tensor, *numbers: float) -> Tensor:
    """`x` in a type that has these numbers. Operators that compare round a number to the type of
    `x`; kernels that compare on the way, as those of activations, do not.
    """
    dtype = from_torch(x.dtype)
    is_exact = all(isinstance(n, int | float) and dtype.rounded(n) == n for n in numbers)
    return x if is_exact else widened(x)


def as_gpus_take(number: float, x: Tensor) -> float:
    """`number` as kernels for `x` take their numbers: those for GPUs round them to its type."""
    if x.device.type == "cpu" or not (x.is_floating_point() and isinstance(number, int | float)):
        return number
    return from_torch(x.dtype).rounded(number)


def eager_rounds_each_step(x: Tensor) -> bool:
    """Whether a loss of half type is left to eager: on the CPU its kernels round each step, and
    differ from ours by more than their own error. Kernels of a GPU are fused with what makes `x`.
    """
    return x.dtype in HALF_TYPES and x.device.type == "cpu"


def as_type(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` in a type, itself where it has that."""
    return x if x.dtype is dtype else aten._to_copy.default(x, dtype=dtype)


def zeros(like: Tensor, size: Sequence[int]) -> Tensor:
    """Zeros of a size, of the type and on the device of `like`."""
    return aten.full.default(list(size), 0, dtype=like.dtype, device=like.device)


def filled(like: Tensor, value: float) -> Tensor:
    """A tensor of no dimensions with a value, of the type and on the device of `like`."""
    return aten.full.default([], value, dtype=like.dtype, device=like.device)


def sum_over(x: Tensor, dims: Sequence[int], keep: bool = True) -> Tensor:
    """The sum over dimensions, which stay as ones; `x` itself where there are none."""
    return aten.sum.dim_IntList(x, list(dims), keep) if dims else x


def share_of(count: int) -> float:
    """1 / `count`, for each of so many elements. Where sizes depend on data there may turn out to
    be none, and nobody reads it.
    """
    return 1 / at_least_one(count)


def is_computed(*tensors: Tensor | None) -> bool:
    """Whether all are of real floating point types, with elements."""
    return all(x is None or (x.dtype.is_floating_point and x.numel() > 0) for x in tensors)


def pair(value: Sequence[int], default: Sequence[int] = ()) -> tuple[int, int]:
    """The two numbers that an argument of one or two stands for; of `default` where it is empty."""
    first, *rest = value or default
    return first, (rest[0] if rest else first)


def row(index: Tensor) -> Tensor:
    """`index`, of one dimension where it has none."""
    return aten.unsqueeze.default(index, 0) if index.dim() == 0 else index


def column(x: Tensor) -> Tensor:
    """`x` with a last dimension of one element."""
    return aten.unsqueeze.default(x, -1)
