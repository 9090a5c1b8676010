"""Rules of operators that only look at their argument differently: nothing is computed, nothing
copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusewright.ir.compounds import maximum, minimum
from fusewright.ir.index import Index, IndexLike, as_index, integer
from fusewright.ir.program import Layout
from fusewright.ir.proof import is_nonnegative, proves
from fusewright.ir.relations import below
from fusewright.lower.boxes import Box
from fusewright.lower.builder import Call
from fusewright.lower.reshape import reshape_position
from fusewright.lower.rules import rule


def dimension(value: int, rank: int) -> int:
    """`value`, counted from the end where negative; a tensor without dimensions has one to name."""
    return value % max(rank, 1)


def dimensions(values: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Each of `values`; all dimensions for None and for an empty list."""
    if values is None or values == []:
        return tuple(range(rank))
    listed = [values] if isinstance(values, int) else values
    return tuple(dimension(d, rank) for d in listed) if rank else ()


@rule(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten._reshape_alias.default",
)
def reshape(call: Call, x: Box, *_: Any) -> Box:
    return reshaped(call, x, call.result.size)


def reshaped(call: Call, x: Box, size: tuple[Index, ...]) -> Box:
    """`x` in another shape of as many elements."""
    if size == x.size:
        return x
    builder = call.builder
    position = builder.remember(
        ("reshape", x.size, size),
        lambda: reshape_position(x.size, size, builder.position(size)),
    )
    return builder.view(x, size, position)


def alias(call: Call, x: Box) -> Box:
    return x


@rule("aten.permute.default")
def permute(call: Call, x: Box, order: Sequence[int]) -> Box:
    sources = [dimension(d, x.rank) for d in order]
    size = tuple(x.size[d] for d in sources)
    at = call.builder.position(size)
    return call.builder.view(x, size, tuple(at[sources.index(d)] for d in range(x.rank)))


@rule("aten.transpose.int")
def transpose(call: Call, x: Box, first: int, second: int) -> Box:
    if x.rank == 0:
        return x
    order = list(range(x.rank))
    a, b = dimension(first, x.rank), dimension(second, x.rank)
    order[a], order[b] = b, a
    return permute(call, x, order)


@rule("aten.t.default")
def transposed(call: Call, x: Box) -> Box:
    return permute(call, x, list(reversed(range(x.rank))))


@rule("aten.expand.default")
def expand(call: Call, x: Box, size: Sequence[IndexLike], *, implicit: bool = False) -> Box:
    return broadcast(call, x, call.result.size)


def broadcast(call: Call, x: Box, size: tuple[Index, ...]) -> Box:
    """`x` repeated along new leading dimensions and along its dimensions of one element."""
    if size == x.size:
        return x
    call.realise_for_broadcast(x, size)
    at = call.builder.position(size)[len(size) - x.rank :]
    position = tuple(
        integer(0) if own == 1 else index for own, index in zip(x.size, at, strict=True)
    )
    return call.builder.view(x, size, position)


@rule("aten.unsqueeze.default")
def unsqueeze(call: Call, x: Box, dim: int) -> Box:
    place = dim % (x.rank + 1)
    size = (*x.size[:place], integer(1), *x.size[place:])
    at = call.builder.position(size)
    return call.builder.view(x, size, (*at[:place], *at[place + 1 :]))


@rule("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(call: Call, x: Box, dim: int | Sequence[int] | None = None) -> Box:
    named = dimensions(dim, x.rank) if dim != [] else ()
    return drop(call, x, [d for d in named if x.size[d] == 1])


def drop(call: Call, x: Box, unit: Sequence[int]) -> Box:
    """`x` without the dimensions `unit`, which have one element each."""
    if not unit:
        return x
    size = tuple(extent for d, extent in enumerate(x.size) if d not in unit)
    at = iter(call.builder.position(size))
    position = tuple(integer(0) if d in unit else next(at) for d in range(x.rank))
    return call.builder.view(x, size, position)


@rule("aten.select.int")
def select(call: Call, x: Box, dim: int, index: IndexLike) -> Any:
    place = dimension(dim, x.rank)
    chosen = from_end(index, x.size[place])
    if chosen is None:
        return NotImplemented
    size = (*x.size[:place], *x.size[place + 1 :])
    at = call.builder.position(size)
    return call.builder.view(x, size, (*at[:place], chosen, *at[place:]))


def from_end(index: IndexLike, extent: Index) -> Index | None:
    """`index` counted from the front; None when its sign is not known."""
    index = as_index(index)
    if is_nonnegative(index):
        return index
    return index + extent if proves(below(index, 0)) else None


@rule("aten.slice.Tensor")
def slice_(
    call: Call,
    x: Box,
    dim: int = 0,
    start: IndexLike | None = None,
    end: IndexLike | None = None,
    step: IndexLike = 1,
) -> Any:
    place = dimension(dim, x.rank)
    first = clamp_start(0 if start is None else start, x.size[place])
    if first is None:
        return NotImplemented
    return strided(call, x, place, first, as_index(step), call.result.size[place])


def clamp_start(start: IndexLike, extent: Index) -> Index | None:
    """The beginning of a slice, in `[0, extent]`; None when the sign of `start` is not known."""
    begin = from_end(start, extent)
    return None if begin is None else maximum(minimum(begin, extent), 0)


def strided(call: Call, x: Box, place: int, first: Index, step: Index, count: Index) -> Box:
    """`count` elements of dimension `place`: `first`, `first + step`, …"""
    if first == 0 and step == 1 and count == x.size[place]:
        return x
    size = (*x.size[:place], count, *x.size[place + 1 :])
    at = call.builder.position(size)
    chosen = first if count == 0 else first + at[place] * step
    return call.builder.view(x, size, (*at[:place], chosen, *at[place + 1 :]))


@rule(
    "aten.unsafe_split.Tensor",
    "aten.unsafe_split_with_sizes.default",
)
def split(call: Call, x: Box, sizes: Any, dim: int = 0) -> tuple[Box, ...]:
    place = dimension(dim, x.rank)
    parts = []
    first = integer(0)
    for layout in call.results:
        count = layout.size[place]
        parts.append(strided(call, x, place, first, integer(1), count))
        first = first + count
    return tuple(parts)


def unbind(call: Call, x: Box, dim: int = 0) -> tuple[Box, ...]:
    return tuple(select(call, x, dim, position) for position in range(len(call.results)))


@rule("aten.diagonal.default")
def diagonal(call: Call, x: Box, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Box:
    row, column = dimension(dim1, x.rank), dimension(dim2, x.rank)
    size = call.result.size
    at = call.builder.position(size)
    along = at[-1]
    rest = iter(at[:-1])
    places = {row: along + max(-offset, 0), column: along + max(offset, 0)}
    position = tuple(places[d] if d in places else next(rest) for d in range(x.rank))
    return call.builder.view(x, size, position)


@rule("aten.unfold.default")
def unfold(call: Call, x: Box, dim: int, window: int, step: int) -> Box:
    """Windows of `window` elements, each `step` after the one before; the window is the last
    dimension.
    """
    size = call.result.size
    at = call.builder.position(size)
    if x.rank == 0:
        return call.builder.view(x, size, ())
    place = dimension(dim, x.rank)
    position = list(at[:-1])
    position[place] = at[place] * step + at[-1]
    return call.builder.view(x, size, tuple(position))


@rule("aten.as_strided.default")
def as_strided(
    call: Call,
    x: Box,
    size: Sequence[IndexLike],
    stride: Sequence[IndexLike],
    storage_offset: IndexLike | None = None,
) -> Any:
    """Any layout of the memory behind `x`, if that memory is made here, laid out as eager would
    have.

    Of an input only eager knows where its memory begins and ends, which may be outside the input.
    """
    builder = call.builder
    if x.storage.buffer is not None and not builder.is_computed(x.storage.buffer):
        return NotImplemented
    buffer = builder.realise(x)
    own = builder.layout(x)
    if own is None:
        return NotImplemented
    layout = Layout(
        dtype=x.dtype,
        size=call.result.size,
        stride=tuple(as_index(s) for s in stride),
        offset=own.offset if storage_offset is None else as_index(storage_offset),
        device=x.device,
    )
    return builder.input(buffer, layout)
