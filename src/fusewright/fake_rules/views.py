"""Geometry of views: sizes, strides and offset in the memory of their argument.

Used where sizes may be symbolic: many of torch's own kernels in C++ do not take those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.errors import DataDependent
from fusewright.fake_rules.geometry import (
    are_sizes,
    contiguous,
    facts_of,
    known_equal,
    named,
    require,
)
from fusewright.ir.index import product
from fusewright.ir.relations import below, equal
from fusewright.records import record
from fusewright.symbolic.nodes import index_of, symbolic_int


@record
class ViewGeometry:
    """The geometry of a view; strides and offset are in elements, the offset counted from the
    beginning of the storage.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: Any


ViewRule = Callable[..., "ViewGeometry | tuple[ViewGeometry, ...] | None"]
"""Takes the arguments of an operator; None leaves the call to torch, which raises its error."""


def _whole(x: Tensor) -> tuple[list[int], list[int], Any]:
    return list(x.shape), list(x.stride()), x.storage_offset()


def _view(size: Sequence[int], stride: Sequence[int], offset: Any) -> ViewGeometry:
    return ViewGeometry(tuple(size), tuple(stride), offset)


def _axis(dim: int, rank: int) -> int | None:
    """`dim` counted from the front; None where there is none such."""
    rank = max(rank, 1)
    return dim % rank if -rank <= dim < rank else None


def itself(x: Tensor, *rest: Any) -> ViewGeometry:
    """alias, detach."""
    return _view(*_whole(x))


def reshaped(x: Tensor, size: Sequence[int]) -> ViewGeometry | None:
    """view, _unsafe_view; one size may be -1."""
    wanted = complete_size(list(size), x.numel())
    if wanted is None:
        return None
    if x.is_contiguous() or x.numel() == 0:
        stride: tuple[int, ...] | None = contiguous(x.dtype, wanted).stride
    else:
        stride = strides_of_view(x.shape, x.stride(), wanted)
    if stride is None:  # Torch's kernels in Python would copy.
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return _view(wanted, stride, x.storage_offset())


def reshape_alias(x: Tensor, size: Sequence[int], stride: Sequence[int]) -> ViewGeometry:
    """_reshape_alias: the strides are known already."""
    return _view(size, stride, x.storage_offset())


def complete_size(size: list[int], count: int) -> list[int] | None:
    """`size` with -1 replaced so that there are `count` elements; None where that cannot be."""
    unknown = [dim for dim, extent in enumerate(size) if isinstance(extent, int) and extent == -1]
    if len(unknown) > 1:
        return None
    rest = [extent for dim, extent in enumerate(size) if dim not in unknown]
    if not are_sizes(rest):
        return None
    facts = facts_of(rest)
    known_count: Any = (
        math.prod(rest) if facts is None else symbolic_int(facts, product(map(index_of, rest)))
    )
    if not unknown:
        require(known_count == count)
        return size if known_equal(known_count, count) or known_count == count else None
    require(count % known_count == 0)
    if known_count == 0 or count % known_count != 0:
        return None
    size[unknown[0]] = count // known_count
    return size


def strides_of_view(
    shape: Sequence[int], strides: Sequence[int], size: Sequence[int]
) -> tuple[int, ...] | None:
    """The strides of a view of size `size` on a tensor of size `shape` and `strides`, which has as
    many elements, some; None where none shows them in row-major order.

    Dimensions of the tensor that lie as one are taken together, from the last; each such run must
    be covered by dimensions of the view.
    """
    if not shape:
        return (1,) * len(size)
    stride: list[int] = [0] * len(size)
    place = len(size) - 1
    run = covered = 1
    step = strides[-1]
    for dim in reversed(range(len(shape))):
        run = run * shape[dim]
        outer = shape[dim - 1] if dim else 1
        if dim and (outer == 1 or strides[dim - 1] == run * step):
            continue
        while place >= 0 and (covered != run or size[place] == 1):
            stride[place] = covered * step
            covered = covered * size[place]
            place -= 1
            if covered > run:
                return None
        if covered != run:
            return None
        run = covered = 1
        step = strides[dim - 1] if dim else 1
    return tuple(stride) if place < 0 else None


def expanded(x: Tensor, size: Sequence[int], *, implicit: bool = False) -> ViewGeometry | None:
    """expand; -1 keeps a size."""
    own, strides, offset = _whole(x)
    lead = len(size) - len(own)
    if lead < 0:
        return None
    if any(extent < 0 for extent in size[:lead]):
        return None
    sizes: list[int] = []
    steps: list[int] = []
    for wanted, extent, step in zip(size[lead:], own, strides, strict=True):
        keeps = (isinstance(wanted, int) and wanted == -1) or wanted == extent
        if not keeps and extent != 1:
            return None
        sizes.append(extent if keeps else wanted)
        steps.append(step if keeps else 0)
    for extent in reversed(size[:lead]):  # A new dimension of one element goes around the next.
        around = sizes[0] * steps[0] if sizes else 1
        steps.insert(0, around if isinstance(extent, int) and extent == 1 else 0)
        sizes.insert(0, extent)
    return _view(sizes, steps, offset)


def permuted(x: Tensor, dims: Sequence[int]) -> ViewGeometry | None:
    """permute."""
    size, stride, offset = _whole(x)
    order = [_axis(dim, x.dim()) for dim in dims]
    if len(order) != x.dim() or None in order or len(set(order)) != len(order):
        return None
    return _view([size[d] for d in order], [stride[d] for d in order], offset)  # type: ignore[index]


def transposed(x: Tensor, first: int, second: int) -> ViewGeometry | None:
    """transpose.int."""
    a, b = _axis(first, x.dim()), _axis(second, x.dim())
    if a is None or b is None:
        return None
    if x.dim() < 2:
        return itself(x)
    order = list(range(x.dim()))
    order[a], order[b] = b, a
    return permuted(x, order)


def matrix_transposed(x: Tensor) -> ViewGeometry | None:
    """t: of two dimensions at most."""
    if x.dim() > 2:
        return None
    return itself(x) if x.dim() < 2 else transposed(x, 0, 1)


def squeezed(x: Tensor, dims: Any = None) -> ViewGeometry | None:
    """squeeze: the dimensions of one element, all or those named, are left out."""
    size, stride, offset = _whole(x)
    named_dims = range(x.dim()) if dims is None else [dims] if isinstance(dims, int) else dims
    axes = [_axis(dim, x.dim()) for dim in named_dims]
    if None in axes:
        return None
    kept = [d for d in range(x.dim()) if d not in axes or not _is_one(size[d])]
    return _view([size[d] for d in kept], [stride[d] for d in kept], offset)


def _is_one(size: Any) -> bool:
    """Whether a size is 1.

    DataDependent: it depends on data.
    """
    if isinstance(size, int):
        return size == 1
    return size.node.facts.decide_exactly(equal(index_of(size), 1))  # type: ignore[no-any-return]


def unsqueezed(x: Tensor, dim: int) -> ViewGeometry | None:
    """unsqueeze: a new dimension of one element."""
    size, stride, offset = _whole(x)
    axis = _axis(dim, x.dim() + 1)
    if axis is None:
        return None
    step = size[axis] * stride[axis] if axis < x.dim() else 1
    size.insert(axis, 1)
    stride.insert(axis, step)
    return _view(size, stride, offset)


def selected(x: Tensor, dim: int, index: int) -> ViewGeometry | None:
    """select.int: one position of a dimension."""
    size, stride, offset = _whole(x)
    axis = _axis(dim, x.dim())
    if not size or axis is None:
        return None
    from_end = is_negative(index)
    exists = -size[axis] <= index if from_end else index < size[axis]
    require(exists)
    if not exists:
        return None
    start = index + size[axis] if from_end else index
    offset = offset + start * stride[axis]
    del size[axis], stride[axis]
    return _view(size, stride, offset)


def sliced(
    x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> ViewGeometry | None:
    """slice.Tensor; bounds beyond the ends are those of the dimension, as in Python."""
    size, stride, offset = _whole(x)
    axis = _axis(dim, x.dim())
    if not size or axis is None or not step > 0:
        return None
    extent = size[axis]
    first = _bounded(0 if start is None else start, extent)
    last = extent if end is None else _bounded(end, extent)
    count = last - first if last >= first else 0
    size[axis] = count if isinstance(step, int) and step == 1 else (count + step - 1) // step
    offset = offset + first * stride[axis]
    stride[axis] = stride[axis] * step
    return _view(size, stride, offset)


def _bounded(place: int, extent: int) -> int:
    """`place`, counted from the end where negative, as a number from 0 to `extent`."""
    if isinstance(place, int) and place >= 2**62:
        return extent
    if is_negative(place):
        place = place + extent
        return place if place >= 0 else 0
    if has_hint(place) and has_hint(extent):
        return place if place <= extent else extent
    return torch.sym_min(place, extent)  # type: ignore[no-any-return]


def has_hint(number: int) -> bool:
    """Whether a number is known, or was seen when compiling."""
    return isinstance(number, int) or number.node.hint is not None


def is_negative(place: int) -> bool:
    """Whether an index counts from the end. DataDependent: that depends on data."""
    if has_hint(place):
        return place < 0
    negative: bool | None = place.node.facts.prove(below(index_of(place), 0))  # type: ignore[attr-defined]
    if negative is None:
        raise DataDependent(
            f"whether the index {place} counts from the end depends on data; "
            "torch._check(index >= 0) promises that it does not"
        )
    return negative


def split(x: Tensor, length: int, dim: int = 0) -> tuple[ViewGeometry, ...] | None:
    """split.Tensor, unsafe_split: parts of one length, the last may be shorter."""
    axis = _axis(dim, x.dim())
    if not x.dim() or axis is None or not length > 0:
        return None
    extent = x.shape[axis]
    count = int((extent + length - 1) // length) if extent != 0 else 1
    lengths = [length] * (count - 1) + [extent - length * (count - 1)]
    return split_with_sizes(x, lengths, axis)


def split_with_sizes(
    x: Tensor, lengths: Sequence[int], dim: int = 0
) -> tuple[ViewGeometry, ...] | None:
    """split_with_sizes: parts of these lengths."""
    size, stride, offset = _whole(x)
    axis = _axis(dim, x.dim())
    if not size or axis is None or any(length < 0 for length in lengths):
        return None
    parts = []
    start: int = 0
    for length in lengths:
        part = [*size[:axis], length, *size[axis + 1 :]]
        parts.append(_view(part, stride, offset + start * stride[axis]))
        start = start + length
    return tuple(parts) if start == size[axis] else None


def unbound(x: Tensor, dim: int = 0) -> tuple[ViewGeometry, ...] | None:
    """unbind.int: one view for each position of a dimension, whose size so becomes known."""
    axis = _axis(dim, x.dim())
    if not x.dim() or axis is None:
        return None
    parts = [selected(x, axis, index) for index in range(int(x.shape[axis]))]
    return tuple(part for part in parts if part is not None)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ViewGeometry | None:
    """diagonal: its dimension comes last."""
    size, stride, start = _whole(x)
    a, b = _axis(dim1, x.dim()), _axis(dim2, x.dim())
    if x.dim() < 2 or a is None or b is None or a == b:
        return None
    rows, columns = (size[a], size[b] - offset) if offset >= 0 else (size[a] + offset, size[b])
    length = torch.sym_max(torch.sym_min(rows, columns), 0)
    if length != 0:
        start = start + (offset * stride[b] if offset >= 0 else -offset * stride[a])
    kept = [d for d in range(x.dim()) if d not in (a, b)]
    sizes = [*(size[d] for d in kept), length]
    return _view(sizes, [*(stride[d] for d in kept), stride[a] + stride[b]], start)


def unfolded(x: Tensor, dim: int, window: int, step: int) -> ViewGeometry | None:
    """unfold: windows of a dimension, whose elements are the last dimension."""
    size, stride, offset = _whole(x)
    axis = _axis(dim, x.dim())
    if not size or axis is None:
        return None
    require(window <= size[axis])
    if not (window >= 0 and window <= size[axis] and step > 0):
        return None
    size.append(window)
    stride.append(stride[axis])
    size[axis] = (size[axis] - window) // step + 1
    stride[axis] = stride[axis] * step
    return _view(size, stride, offset)


def as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> ViewGeometry | None:
    """as_strided, within the memory that there is."""
    offset = x.storage_offset() if storage_offset is None else storage_offset
    if len(size) != len(stride) or any(number < 0 for number in (*size, *stride, offset)):
        return None
    reach = offset + 1
    for extent, step in zip(size, stride, strict=True):
        if extent == 0:
            return _view(size, stride, offset)
        reach = reach + (extent - 1) * step
    # A wrapper knows a symbolic size, what is inside it that of memory which others show as well.
    held = [tensor.untyped_storage().nbytes() for tensor in (getattr(x, "meta_tensor", x), x)]
    fits = [reach * x.itemsize <= count for count in held]
    if True not in fits[:1]:
        require(fits[-1])
    return _view(size, stride, offset) if any(fits) else None


VIEW_RULES: dict[Any, ViewRule] = {
    **named(itself, "alias detach detach_"),
    **named(reshaped, "view _unsafe_view"),
    **named(reshape_alias, "_reshape_alias"),
    **named(expanded, "expand"),
    **named(permuted, "permute"),
    **named(matrix_transposed, "t t_"),
    **named(transposed, "transpose.int transpose_ swapdims_ swapaxes_"),
    **named(squeezed, "squeeze squeeze.dim squeeze.dims squeeze_ squeeze_.dim squeeze_.dims"),
    **named(unsqueezed, "unsqueeze unsqueeze_"),
    **named(selected, "select.int"),
    **named(sliced, "slice.Tensor"),
    **named(split, "split.Tensor unsafe_split.Tensor"),
    **named(split_with_sizes, "split_with_sizes unsafe_split_with_sizes"),
    **named(unbound, "unbind.int"),
    **named(diagonal, "diagonal"),
    **named(unfolded, "unfold"),
    **named(as_strided, "as_strided as_strided_"),
}
"""Rules by operator; those in place turn their argument into the view."""
