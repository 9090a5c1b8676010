"""Operators whose results have as many rows as the data says: their sizes are new symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import Geometry, contiguous, ordered_by_strides
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import Number, index_of, symbolic_int

aten = torch.ops.aten

UnknownRule = Callable[..., Geometry | tuple[Geometry, ...] | None]
"""Takes the facts and the arguments of an operator; None: it cannot tell."""


def _some_of(facts: ShapeFacts, count: Number) -> Any:
    """A new size of at most `count`."""
    return symbolic_int(facts, facts.unknown_size(0, index_of(count).upper))


def nonzero(facts: ShapeFacts, x: Tensor) -> Geometry:
    """Indices of the elements that are not zero, a row each; torch lays out the columns."""
    count = _some_of(facts, x.numel())
    return Geometry(torch.int64, (count, x.dim()), (1, count))


def masked_select(facts: ShapeFacts, x: Tensor, mask: Tensor) -> Geometry:
    elements = torch.broadcast_shapes(x.shape, mask.shape)
    total: Any = 1
    for size in elements:
        total = total * size
    return contiguous(x.dtype, (_some_of(facts, total),))


def index(facts: ShapeFacts, x: Tensor, indices: Sequence[Tensor | None]) -> Geometry | None:
    """`x[:, mask]`, a single mask over adjoining dimensions: laid out as if its elements were
    picked by a vector of their positions.
    """
    masks = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(masks) != 1:
        return None
    ((dim, mask),) = masks
    end = dim + mask.dim()
    size = (*x.shape[:dim], _some_of(facts, mask.numel()), *x.shape[end:])
    source = [*x.stride()[:dim], 0, *x.stride()[end:]]
    positions = [int(place == dim) for place in range(len(size))]
    return ordered_by_strides(x.dtype, size, [source, positions])


def repeat_interleave(
    facts: ShapeFacts, repeats: Tensor, *, output_size: Number | None = None
) -> Geometry:
    count: Any = output_size
    if count is None:
        count = symbolic_int(facts, facts.unknown_size())
    return contiguous(torch.int64, (count,))


def unique(
    facts: ShapeFacts,
    x: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Geometry, ...]:
    count = _some_of(facts, x.numel())
    inverse = x.shape if return_inverse else (0,)
    return (
        contiguous(x.dtype, (count,)),
        contiguous(torch.int64, tuple(inverse)),
        contiguous(torch.int64, (count if return_counts else 0,)),
    )


def unique_consecutive(
    facts: ShapeFacts,
    x: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Geometry, ...]:
    """Elements without repetitions, or slices along `dim`."""
    if dim is None:
        return unique(facts, x, True, return_inverse, return_counts)
    return unique_slices(facts, x, dim)


def unique_slices(facts: ShapeFacts, x: Tensor, dim: int, *options: bool) -> tuple[Geometry, ...]:
    """Slices along `dim` without repetitions, with all that may be asked for. A CPU's kernel has
    that dimension outermost in memory, a GPU's is row-major.
    """
    dim %= max(x.dim(), 1)
    count = _some_of(facts, x.shape[dim])
    size = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    outermost = (count, *x.shape[:dim], *x.shape[dim + 1 :])
    if x.is_cuda:
        rows = contiguous(x.dtype, size)
    else:
        first, *others = contiguous(x.dtype, outermost).stride
        rows = Geometry(x.dtype, size, (*others[:dim], first, *others[dim:]))
    return rows, contiguous(torch.int64, (x.shape[dim],)), contiguous(torch.int64, (count,))


UNKNOWN_RULES: dict[Any, UnknownRule] = {
    aten.nonzero.default: nonzero,
    aten.masked_select.default: masked_select,
    aten.index.Tensor: index,
    aten.repeat_interleave.Tensor: repeat_interleave,
    aten._unique2.default: unique,
    aten.unique_consecutive.default: unique_consecutive,
    aten.unique_dim.default: unique_slices,
}
"""Rules by operator."""
