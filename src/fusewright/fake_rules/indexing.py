"""Geometry of operators that gather, join and pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import (
    Geometry,
    Rule,
    aten,
    broadcast_sizes,
    contiguous,
    copied_row_major,
    is_channels_last,
    named,
    ordered_by_strides,
    same_sizes,
)
from fusewright.fake_rules.requirements import padding_fits
from fusewright.fake_rules.views import (
    VIEW_RULES,
    ViewGeometry,
    complete_size,
    strides_of_view,
)
from fusewright.operators import copy_of_view


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Geometry | None:
    """Concatenation of contiguous tensors of one type and rank."""
    first = tensors[0]
    rank = first.dim()
    if rank == 0 or not -rank <= dim < rank:
        return None
    axis = dim % rank
    size = list(first.shape)
    for other in tensors[1:]:
        if other.dtype != first.dtype or other.dim() != rank:
            return None
        if any(other.shape[d] != size[d] for d in range(rank) if d != axis):
            return None
        size[axis] += other.shape[axis]
    return contiguous(first.dtype, size) if all(t.is_contiguous() for t in tensors) else None


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Geometry | None:
    """stack of contiguous tensors of one type and size."""
    first = tensors[0]
    rank = first.dim() + 1
    if not -rank <= dim < rank:
        return None
    if any(
        t.dtype != first.dtype or t.shape != first.shape or not t.is_contiguous() for t in tensors
    ):
        return None
    axis = dim % rank
    return contiguous(first.dtype, (*first.shape[:axis], len(tensors), *first.shape[axis:]))


def repeat(x: Tensor, times: Sequence[int]) -> Geometry | None:
    """repeat: `times` may have more dimensions than `x`. Of a dimension without elements eager
    takes any number of times, a negative one too.
    """
    if len(times) < x.dim():
        return None
    sizes = (*(1 for _ in range(len(times) - x.dim())), *x.shape)
    pairs = list(zip(sizes, times, strict=True))
    if any(count < 0 and size != 0 for size, count in pairs):
        return None
    return contiguous(x.dtype, [size * count for size, count in pairs])


def padded(x: Tensor, pad: Sequence[int], value: Any = 0) -> Geometry | None:
    """constant_pad_nd of a contiguous tensor; `pad` begins with the last dimension."""
    if not x.is_contiguous() or is_channels_last(x) or len(pad) % 2 or len(pad) > 2 * x.dim():
        return None
    if not padding_fits(x, pad):
        return None
    sizes = list(x.shape)
    for position, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        sizes[-position] += before + after
    return contiguous(x.dtype, sizes) if all(size > 0 for size in sizes) else None


def triangle(x: Tensor, diagonal: int = 0) -> Geometry | None:
    """tril, triu."""
    return contiguous(x.dtype, x.shape) if x.dim() >= 2 else None


def embedding(weight: Tensor, indices: Tensor, *options: Any) -> Geometry | None:
    """Rows of `weight` by `indices`."""
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    return contiguous(weight.dtype, (*indices.shape, weight.shape[1]))


def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Geometry | None:
    """gather: the sizes of the index."""
    rank = x.dim()
    if rank == 0 or index.dim() != rank or index.dtype not in (torch.int64, torch.int32):
        return None
    others = (d for d in range(rank) if d != dim % rank)
    if not -rank <= dim < rank or any(index.shape[d] > x.shape[d] for d in others):
        return None
    return contiguous(x.dtype, index.shape)


def index_select(x: Tensor, dim: int, index: Tensor) -> Geometry | None:
    """index_select: as many along `dim` as the index has."""
    rank = x.dim()
    if rank == 0 or index.dim() != 1 or not -rank <= dim < rank:
        return None
    if index.dtype not in (torch.int64, torch.int32):
        return None
    axis = dim % rank
    return contiguous(x.dtype, (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]))


def places(x: Tensor, *, size: int, fill_value: int = -1) -> Geometry | None:
    """nonzero_static: a row for each place on the CPU, where a GPU lays out the columns."""
    if x.device.type != "cpu" or (isinstance(size, int) and size < 0):
        return None
    return contiguous(torch.int64, (size, x.dim()))


def advanced_index(x: Tensor, indices: Sequence[Tensor | None]) -> Geometry | None:
    """index.Tensor by integers. Indexed dimensions that are not neighbours move to the front.

    Source: the published behaviour of advanced indexing, which runs one TensorIterator over the
    source, its indexed dimensions replaced by the indices' with stride 0, and the indices.
    """
    chosen = [dim for dim, index in enumerate(indices) if index is not None]
    vectors = [index for index in indices if index is not None]
    if not vectors or any(index.dtype not in (torch.int64, torch.int32) for index in vectors):
        return None
    if len(indices) > x.dim():
        return None
    shape = broadcast_sizes([tuple(index.shape) for index in vectors])
    if shape is None or any(extent == 0 for extent in shape):
        return None  # Indices without elements are left to torch's kernel.
    neighbours = chosen[-1] - chosen[0] + 1 == len(chosen)
    before = range(chosen[0]) if neighbours else range(0)
    rest = [dim for dim in range(x.dim()) if dim not in chosen and dim not in before]
    size = (*(x.shape[d] for d in before), *shape, *(x.shape[d] for d in rest))
    source = [*(x.stride(d) for d in before), *(0 for _ in shape), *(x.stride(d) for d in rest)]
    sizes = (*(1 for _ in before), *shape, *(1 for _ in rest))
    operands = [source]
    for index in vectors:
        strides = strides_of_view(shape, _expanded_strides(index, shape), sizes)
        assert strides is not None, "dimensions of one element can be added anywhere"
        operands.append(
            [
                0 if own == 1 and whole != 1 else stride
                for own, whole, stride in zip(sizes, size, strides, strict=True)
            ]
        )
    return ordered_by_strides(x.dtype, size, operands)


def _expanded_strides(index: Tensor, shape: tuple[int, ...]) -> list[int]:
    """The strides of an index that is expanded to `shape`."""
    lead = len(shape) - index.dim()
    return [0] * lead + [
        0 if extent == 1 and shape[lead + dim] != 1 else index.stride(dim)
        for dim, extent in enumerate(index.shape)
    ]


def put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Geometry | None:
    """index_put, by integers, of just as many values as there are places, into a tensor that is
    contiguous, as its copy then is.
    """
    vectors = [index for index in indices if index is not None]
    if any(tensor.device != x.device for tensor in (*vectors, values)) or values.dtype != x.dtype:
        return None
    if any(type(extent) is int and extent == 0 for extent in x.shape):
        return None  # There are no places.
    picked = advanced_index(x, indices)
    if picked is None or not same_sizes(picked.size, values.shape):
        return None
    return copied_row_major(x)


def scattered(view: Any) -> Rule:
    """select_scatter and its like: what has the sizes of a view, into a contiguous tensor."""

    def rule(x: Tensor, source: Tensor, *arguments: Any, **keywords: Any) -> Geometry | None:
        shown = VIEW_RULES[view](x, *arguments, **keywords)
        if not isinstance(shown, ViewGeometry) or not same_sizes(shown.size, source.shape):
            return None
        is_alike = source.dtype == x.dtype and source.device == x.device
        return copied_row_major(x) if is_alike else None

    return rule


def copied(view: Any) -> Rule:
    """squeeze_copy and its like: the elements of a view, row-major."""

    def rule(x: Tensor, *arguments: Any, **keywords: Any) -> Geometry | None:
        shown = VIEW_RULES[view](x, *arguments, **keywords)
        return contiguous(x.dtype, shown.size) if isinstance(shown, ViewGeometry) else None

    return rule


def view_copy(x: Tensor, size: Sequence[int]) -> Geometry | None:
    """view_copy: also where the layout allows no view."""
    wanted = complete_size(list(size), x.numel())
    return None if wanted is None else contiguous(x.dtype, wanted)


RULES: dict[Any, Rule] = {
    **{copy: copied(view) for view in VIEW_RULES if (copy := copy_of_view(view)) is not None},
    **named(view_copy, "view_copy"),
    **named(cat, "cat"),
    **named(stack, "stack"),
    **named(repeat, "repeat"),
    **named(padded, "constant_pad_nd"),
    **named(triangle, "tril triu"),
    **named(embedding, "embedding"),
    **named(gather, "gather"),
    **named(index_select, "index_select"),
    **named(advanced_index, "index.Tensor"),
    **named(put, "index_put"),
    **named(places, "nonzero_static"),
    **named(scattered(aten.select.int), "select_scatter"),
    **named(scattered(aten.slice.Tensor), "slice_scatter"),
    **named(scattered(aten.diagonal.default), "diagonal_scatter"),
}
