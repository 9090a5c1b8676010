"""Geometry of operators that make tensors from numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import (
    Geometry,
    Rule,
    are_sizes,
    contiguous,
    elementwise,
    extent,
    is_number,
    named,
)


def arange(*bounds: Any, dtype: torch.dtype | None = None, **options: Any) -> Geometry | None:
    """A range of numbers: ceil((end - start) / step) of them."""
    if not all(is_number(bound) for bound in bounds) or dtype is torch.bool:
        return None
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if step == 0 or (end - start) * step < 0:
        return None
    if all(isinstance(bound, (int, torch.SymInt)) for bound in bounds):
        return contiguous(dtype or torch.int64, (-((start - end) // step),))
    if dtype is not None and not dtype.is_floating_point:
        return None
    return contiguous(dtype or torch.get_default_dtype(), (math.ceil((end - start) / step),))


def sized(
    size: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any
) -> Geometry | None:
    """rand, ones …: a fresh contiguous tensor of the default type."""
    if options.get("memory_format") is not None or options.get("layout") not in (
        None,
        torch.strided,
    ):
        return None
    return contiguous(dtype or torch.get_default_dtype(), size) if are_sizes(size) else None


def random_integers(
    *arguments: Any, dtype: torch.dtype | None = None, **options: Any
) -> Geometry | None:
    """randint(high, size) and randint(low, high, size)."""
    size = arguments[-1]
    return contiguous(dtype or torch.int64, size) if are_sizes(size) else None


def permutation(n: int, *, dtype: torch.dtype | None = None, **options: Any) -> Geometry | None:
    """randperm(n)."""
    return contiguous(dtype or torch.int64, (n,)) if are_sizes((n,)) else None


def identity(
    n: int, m: int | None = None, *, dtype: torch.dtype | None = None, **options: Any
) -> Geometry | None:
    """eye(n), eye(n, m)."""
    size = (n, n if m is None else m)
    return contiguous(dtype or torch.get_default_dtype(), size) if are_sizes(size) else None


def evenly_spaced(
    start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **options: Any
) -> Geometry | None:
    """linspace with numbers for its ends."""
    if not (is_number(start) and is_number(end) and are_sizes((steps,))):
        return None
    return contiguous(dtype or torch.get_default_dtype(), (steps,))


def _may_overflow(value: Any, dtype: torch.dtype) -> bool:
    """Whether eager may refuse a number, for being none of a type."""
    if dtype is torch.bool or dtype.is_complex or not isinstance(value, int | float):
        return False
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return not limits.min <= value <= limits.max


def preserved(
    x: Tensor,
    *values: Any,
    dtype: torch.dtype | None = None,
    memory_format: Any = None,
    **options: Any,
) -> Geometry | None:
    """zeros_like, full_like …: the layout of the model tensor, its gaps closed."""
    if options.get("layout") not in (None, torch.strided):
        return None
    if any(_may_overflow(value, dtype or x.dtype) for value in values):
        return None
    if memory_format is torch.contiguous_format:
        return contiguous(dtype or x.dtype, x.shape)
    if memory_format not in (None, torch.preserve_format):
        return None
    return elementwise(dtype or x.dtype, (x,))


def tangent(x: Tensor, like: Tensor, *, self_num_batch_dims: int = 0) -> Geometry:
    """_new_zeros_with_same_feature_meta, of forward gradients: zeros laid out as `like`, behind the
    batch dimensions of `x`.
    """
    batch = list(x.shape[:self_num_batch_dims])
    step, strides = extent(like.shape, like.stride()), list(like.stride())
    for size in reversed(batch):
        strides.insert(0, step)
        step = step * size
    return Geometry(x.dtype, (*batch, *like.shape), tuple(strides))


RULES: dict[Any, Rule] = {
    **named(tangent, "_new_zeros_with_same_feature_meta"),
    **named(arange, "arange arange.start arange.start_step"),
    **named(sized, "rand randn ones zeros empty.memory_format"),
    **named(random_integers, "randint randint.low"),
    **named(permutation, "randperm"),
    **named(identity, "eye eye.m"),
    **named(evenly_spaced, "linspace"),
    **named(preserved, "zeros_like ones_like full_like empty_like rand_like randn_like"),
}
