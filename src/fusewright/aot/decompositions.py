"""Operators computed by simpler ones while tracing, so that lowering needs fewer rules.

Each function takes the operator's own arguments and computes the result with `torch.ops.aten` operators, which the
tracer records; it may give NotImplemented to leave a call as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def split(x: Tensor, split_size: int, dim: int = 0) -> list[Tensor]:
    """split(x, n) = slices of n rows, the last one shorter."""
    extent = x.shape[dim]
    if split_size == 0:
        return [aten.slice.Tensor(x, dim, 0, extent)]
    starts = range(0, extent, split_size) if extent else [0]
    return [aten.slice.Tensor(x, dim, start, min(start + split_size, extent)) for start in starts]


def split_with_sizes(x: Tensor, sizes: list[int], dim: int = 0) -> list[Tensor]:
    """split_with_sizes(x, [a, b]) = slices of a and b rows."""
    pieces = []
    start = 0
    for size in sizes:
        pieces.append(aten.slice.Tensor(x, dim, start, start + size))
        start += size
    return pieces


def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    """unbind(x) = select each index."""
    return [aten.select.int(x, dim, index) for index in range(x.shape[dim])]


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.split.Tensor: split,
    aten.split_with_sizes.default: split_with_sizes,
    aten.unbind.int: unbind,
}
"""By operator. Which operators are left is what lowering has rules for, or calls as they are."""
