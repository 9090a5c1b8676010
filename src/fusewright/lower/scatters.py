"""Rules of operators that combine values with the elements of a tensor that indices pick.

Points that meet in one element are taken in order, so that results do not depend on timing. On a
GPU they meet in any order, as in eager, unless algorithms are asked to be deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, IndexLike, product
from fusewright.ir.program import Layout, Scatter
from fusewright.lower.boxes import Box, Position, has_gaps
from fusewright.lower.builder import Call
from fusewright.lower.indexing import Picks, all_of, may_be_empty, moved, picked, within
from fusewright.lower.rules import rule
from fusewright.lower.runs import added_in_order
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import clamp_start, dimension, from_end

ATOMIC: Final = frozenset({DType.F32, DType.F64, DType.I32, DType.I64})
"""Types to which a GPU adds atomically."""

MODES: Final = {"add": "add", "sum": "add", "amax": "max", "amin": "min"}
"""Modes of scatters by eager's names."""


def combined(
    call: Call,
    x: Box,
    sources: Sequence[Box],
    size: tuple[Index, ...],
    place: Callable[[Position], Position],
    value: Callable[[Position], Scalar],
    mode: str,
) -> Any:
    """`x` with the value at each position of `size` combined into the element at its place. Made
    of `sources`. Of a view that is put back, the result is the whole tensor.
    """
    is_rounded = mode == "add" and x.dtype.compute is not x.dtype
    if not has_kernel(x, mode) or (call.is_put_back and is_rounded):
        return NotImplemented
    if is_rounded:
        # Sums of a half type are rounded once, at the end, as eager's are.
        wide = call.lazy(x.size, x.dtype.compute, lambda at: call.read(x, at))
        return call.same(combined(call, wide, sources, size, place, value, mode), 0)
    builder = call.builder
    base = builder.realise(x)
    is_read = any(box.storage is x.storage for box in sources)
    if call.is_put_back:
        if is_read or x.storage.layout != base.layout or has_gaps(base.layout):
            return NotImplemented
    elif is_read or not _shows_all(call, x, base.layout):
        x = builder.copy(x, call.results[0].stride)  # as_strided may show its memory
        base = builder.realise(x)
    builder.realise_readers(base.name)
    at = builder.position(size)
    index = base.layout.index(builder.storage_position(x, place(at)))
    element = value(at)
    body = Scatter(
        loops=builder.loops(size),
        base=base.name,
        index=index,
        indirect=builder.expressions.behind(index),
        mode=mode,
        value=element.cast(x.dtype).value,
    )
    whole = builder.input(builder.compute(base.layout, body, call.all_origins))
    return whole if call.is_put_back else Box(whole.storage, x.size, x.position)


def _shows_all(call: Call, x: Box, layout: Layout) -> bool:
    """Whether `x` has each element of a buffer once, in any order."""
    own = call.builder.layout(x)
    return (
        own is not None
        and x.storage.layout == layout
        and not has_gaps(layout)
        and not has_gaps(own)
        and own.offset == 0
        and product(own.size) == product(layout.size)
    )


def has_kernel(x: Box, mode: str) -> bool:
    """Whether kernels combine as eager does. Deterministic algorithms are a guard of the graph."""
    if x.device == "cpu":
        return mode != "add" or x.dtype is not DType.BOOL
    if torch.are_deterministic_algorithms_enabled():
        return False
    return mode == "store" or (mode == "add" and x.dtype.compute in ATOMIC)


@rule("aten.index_put.default")
def index_put(
    call: Call, x: Box, indices: Sequence[Box | None], values: Box, accumulate: bool = False
) -> Any:
    """`values` written or added, in order, to the elements picked by integer tensors. On a GPU
    eager sorts them, so that sums do not depend on timing, and so does what adds many here.
    """
    picks = Picks.of(x, indices)
    if picks is None:
        return NotImplemented
    if x.device != "cpu":
        return added_in_order(call, picks, values) if accumulate else NotImplemented
    sources = (values, *picks.tensors.values())
    if accumulate:
        call.realise_unless_free(values)  # Scheduling moves it here where that holds no more.

    def place(at: Position) -> Position:
        return picks.position(call, at)

    def value(at: Position) -> Scalar:
        return call.read(values, at, x.dtype)

    return combined(call, x, sources, picks.size, place, value, "add" if accumulate else "store")


@rule("aten.scatter_add.default", "aten.scatter.src", "aten.scatter.reduce")
def scatter(
    call: Call, x: Box, dim: int, index: Box, source: Box, *, reduce: str | None = None
) -> Any:
    """Elements of `source` written, or added, at the positions along `dim` that `index` has."""
    adds = call.operator == "aten.scatter_add.default"
    mode = "add" if adds else "store" if reduce is None else MODES.get(reduce)
    return _scattered(call, x, dim, index, source, mode)


@rule("aten.scatter_reduce.two")
def scatter_reduce(
    call: Call, x: Box, dim: int, index: Box, source: Box, reduce: str, *, include_self: bool = True
) -> Any:
    return _scattered(call, x, dim, index, source, MODES.get(reduce) if include_self else None)


@rule("aten.scatter.value", "aten.scatter.value_reduce")
def scatter_number(
    call: Call, x: Box, dim: int, index: Box, number: Any, *, reduce: str | None = None
) -> Any:
    """A number written, or added, at the positions along `dim` that `index` has."""
    if not isinstance(number, (bool, int) if x.dtype.is_integer else (bool, int, float)):
        return NotImplemented
    mode = "store" if reduce is None else MODES.get(reduce)
    return _scattered(call, x, dim, index, number, mode)


def _scattered(
    call: Call, x: Box, dim: int, index: Box, source: Box | bool | int | float, mode: str | None
) -> Any:
    if mode is None or not 0 < x.rank == index.rank or may_be_empty(x):
        return NotImplemented
    along = dimension(dim, x.rank)

    def place(at: Position) -> Position:
        chosen = picked(call, index, at, x.size[along], wrap=False)
        return (*at[:along], chosen, *at[along + 1 :])

    def value(at: Position) -> Scalar:
        if isinstance(source, Box):
            return call.read(source, at)
        return call.number(source, x.dtype.compute)

    sources = (index, source) if isinstance(source, Box) else (index,)
    return combined(call, x, sources, index.size, place, value, mode)


@rule("aten.index_add.default")
def index_add(
    call: Call, x: Box, dim: int, index: Box, source: Box, *, alpha: bool | int | float = 1
) -> Any:
    """`alpha` times the slices of `source` along `dim` added to those of `x` that `index` picks."""
    if not isinstance(alpha, (bool, int, float)):
        return NotImplemented

    def value(at: Position) -> Scalar:
        element = call.read(source, at, x.dtype.compute)
        return element if alpha == 1 else element * element.like(alpha)

    return _by_slices(call, x, dim, index, source, value, "add")


@rule("aten.index_copy.default")
def index_copy(call: Call, x: Box, dim: int, index: Box, source: Box) -> Any:
    """The slices of `x` along `dim` that `index` picks, replaced by those of `source`."""
    return _by_slices(call, x, dim, index, source, lambda at: call.read(source, at), "store")


def _by_slices(
    call: Call,
    x: Box,
    dim: int,
    index: Box,
    source: Box,
    value: Callable[[Position], Scalar],
    mode: str,
) -> Any:
    if not 0 < x.rank == source.rank or index.rank > 1 or may_be_empty(x):
        return NotImplemented
    along = dimension(dim, x.rank)

    def place(at: Position) -> Position:
        where = (at[along],) if index.rank else ()
        chosen = picked(call, index, where, x.size[along], wrap=False)
        return (*at[:along], chosen, *at[along + 1 :])

    return combined(call, x, (index, source), source.size, place, value, mode)


# Slices -------------------------------------------------------------------------------------------


@rule("aten.select_scatter.default")
def select_scatter(call: Call, x: Box, source: Box, dim: int, index: IndexLike) -> Any:
    """`x` with one place of a dimension replaced by `source`. Where elements of `x` share memory,
    so do those of the result, which takes eager's own order of writing.
    """
    if not call.result.is_injective:
        return NotImplemented
    along = dimension(dim, x.rank)
    chosen = from_end(index, x.size[along])
    if chosen is None:
        return NotImplemented
    if _is_written_to(call, x):
        return _stored(call, x, source, lambda at: (*at[:along], chosen, *at[along:]))

    def element(at: Position) -> Scalar:
        inside = call.index(at[along]).apply("eq", call.index(chosen))
        new = call.read(source, (*at[:along], *at[along + 1 :]), x.dtype.compute)
        return inside.where(new.masked(inside, 0), call.read(x, at))

    return call.elementwise(element)


@rule("aten.slice_scatter.default")
def slice_scatter(
    call: Call,
    x: Box,
    source: Box,
    dim: int = 0,
    start: IndexLike | None = None,
    end: IndexLike | None = None,
    step: int = 1,
) -> Any:
    """`x` with every `step`-th element from `start` replaced by `source`'s; its memory as that of
    `select_scatter`.
    """
    if not call.result.is_injective:
        return NotImplemented
    along = dimension(dim, x.rank)
    first = clamp_start(0 if start is None else start, x.size[along])
    if first is None or not isinstance(step, int):
        return NotImplemented
    count = source.size[along]
    if count == 0:
        return moved(call, x, lambda at: at)
    if _is_written_to(call, x):
        return _stored(
            call, x, source, lambda at: (*at[:along], first + at[along] * step, *at[along + 1 :])
        )

    def element(at: Position) -> Scalar:
        offset = at[along] - first
        conditions = within(call, offset, 0, count * step)
        if step != 1:
            conditions.append(call.index(offset % step).apply("eq", 0))
        inside = all_of(call, conditions)
        new = call.read(source, (*at[:along], offset // step, *at[along + 1 :]), x.dtype.compute)
        return inside.where(new.masked(inside, 0), call.read(x, at))

    return call.elementwise(element)


def _is_written_to(call: Call, x: Box) -> bool:
    """Whether the result is the new value of an input, which nobody else reads: then the rest of
    the input stays where it is.
    """
    return call.replaces_input and has_kernel(x, "store")


def _stored(call: Call, x: Box, source: Box, place: Callable[[Position], Position]) -> Any:
    return combined(
        call,
        x,
        (source,),
        source.size,
        place,
        lambda at: call.read(source, at, x.dtype.compute),
        "store",
    )
