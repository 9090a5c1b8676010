"""Rows of a tensor added up where they go to the same row of a table, as gradients of embeddings
are, in one order whatever the timing.

    sorted, order = sort(numbers)                     numbers[n]: the row of the table of row n
    first = searchsorted(sorted, [0, 1, …, count])
    table[v] = sum of rows[order[j]] over j from first[v] to below first[v + 1]: a run

A run has any length, from none to all rows, and a point of the table walks over its own. So that no
long one keeps a program waiting, the order is cut into blocks of `BLOCK` places. What a block comes
to that lies within one run is summed first, by points of its own; a run is then its places before
such blocks, its blocks, and its places behind them:

    order    | a a a b b b b b | b b b b b b b b | b b b b b b b b | b b c c c c d d |
    run b            head        block 1           block 2           tail

Each row is read once. Where the table has few rows, nothing is sorted: each looks at all numbers.
Where it has many more than are added, most runs are empty, and programs that can walk over runs
write zeros at half the speed of memory: each place of the order sums the run that begins there
then, and the table takes its rows from these sums, element by element.

    sums[j] = sum of the run that begins at place j, if one does
    table[v] = sums[first[v]] where first[v] < first[v + 1], else 0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from fusewright.ir.compounds import maximum, minimum
from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, IndexLike, as_index, contiguous_strides, product
from fusewright.ir.program import Layout
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.extern import call_library
from fusewright.lower.indexing import Picks, may_be_empty
from fusewright.lower.rules import rule
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import reshaped
from fusewright.records import record

aten = torch.ops.aten

BLOCK: Final = 64
"""Places of a block."""

FEWEST_ROWS: Final = 2048
"""Rows below which the library adds them up without sorting."""

SPARSE_SHARE: Final = 4
"""A table of so many times the rows that are added, or more, takes them from sums by place."""

MOST_COMPARED: Final = 1 << 26
"""Elements, times rows of the table, up to which each row of the table looks at all numbers."""

MOST_ROWS_COMPARED: Final = 32
"""The rows of the largest table of which each row looks at all numbers."""


@rule("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    call: Call,
    gradient: Box,
    indices: Box,
    count: IndexLike,
    padding: int,
    scale_by_frequency: bool,
) -> Any:
    """Each row of the gradient added to that of its index, but for the padding's. Indices are in
    range: looking them up in the table has checked it.
    """
    rows = indices.elements
    if scale_by_frequency or gradient.device == "cpu" or not _are_summed(call, gradient, rows):
        return NotImplemented
    count = as_index(count)
    flat = reshaped(call, indices, (rows,))

    def number(at: Position) -> Scalar:
        own = call.read(flat, at, DType.I64)
        if padding < 0:
            return own
        return own.apply("eq", padding).where(call.index(count), own)

    summed = reshaped(call, gradient, (rows, gradient.size[-1]))
    return call.same(table_of(call, summed, number, count), 0)


def added_in_order(call: Call, picks: Picks, values: Box) -> Any:
    """`values` added to the elements that indices pick along the first dimensions; the indices are
    checked.
    """
    x, spread = picks.x, picks.spread
    places, rest = x.size[: len(picks.tensors)], x.size[len(picks.tensors) :]
    rows, width = product(spread), product(rest)
    is_first = list(picks.tensors) == list(range(len(places)))
    if call.is_put_back or not is_first or not _are_summed(call, values, rows):
        return NotImplemented
    if may_be_empty(x) or values.dtype is not x.dtype:
        return NotImplemented
    if values.size != picks.size:
        values = call.lazy(picks.size, x.dtype, lambda at: call.raw(values, at))
    summed = reshaped(call, values, (rows, width))
    steps = contiguous_strides(places)

    def linear(at: Position) -> Scalar:
        position = picks.position(call, (*at, *(as_index(0) for _ in rest)))
        total = as_index(0)
        for index, step in zip(position, steps, strict=False):
            total = total + index * step
        return call.index(total)

    spread_numbers = call.lazy(spread, DType.I64, linear)
    numbers = reshaped(call, spread_numbers, (rows,))
    table = table_of(call, summed, lambda at: call.read(numbers, at), product(places))
    sums = reshaped(call, table, x.size)
    return call.elementwise(lambda at: call.read(x, at) + call.read(sums, at))


def _are_summed(call: Call, values: Box, rows: Index) -> bool:
    """Whether kernels add up so many rows of values."""
    dtype = values.dtype
    if not dtype.is_float or not dtype.is_computed or may_be_empty(values):
        return False
    return call.builder.hint(rows) >= FEWEST_ROWS


def table_of(call: Call, rows: Box, number: Callable[[Position], Scalar], count: Index) -> Box:
    """A table of `count` rows, each the sum of those of `rows` that have its number."""
    call.builder.realise(rows)
    is_short = count.upper is not None and count.upper < (1 << 15) - 1
    dtype = DType.I16 if is_short else DType.I32
    numbers = call.lazy(rows.size[:1], dtype, lambda at: number(at).cast(dtype))
    if _is_small(call, rows, count):
        return _compared(call, rows, numbers, count)
    runs = Runs.of(call, rows, numbers, count)
    is_sparse = SPARSE_SHARE * call.builder.hint(rows.size[0]) <= call.builder.hint(count)
    return runs.taken() if is_sparse else runs.table()


def _is_small(call: Call, rows: Box, count: Index) -> bool:
    hint = call.builder.hint
    return (
        count.upper is not None
        and count.upper <= MOST_ROWS_COMPARED
        and hint(count) * hint(product(rows.size)) <= MOST_COMPARED
    )


def _compared(call: Call, rows: Box, numbers: Box, count: Index) -> Box:
    """The table whose rows take what has their number, of all rows that there are."""
    call.builder.realise(numbers)

    def own(at: Position) -> Scalar:
        row, column, place = at
        is_own = call.read(numbers, (place,), DType.I64).apply("eq", call.index(row))
        return call.read(rows, (place, column)).masked(is_own, 0)

    length, width = rows.size
    return _without_last(call, call.reduce("sum", (count, width, length), (2,), own))


def _without_last(call: Call, sums: Box) -> Box:
    """Sums without the dimension that was summed."""
    size = sums.size[:-1]
    at = call.builder.position(size)
    return call.builder.view(sums, size, (*at, as_index(0)))


@record(eq=False)
class Runs:
    """Rows, sorted by the row of the table that each goes to."""

    call: Call
    rows: Box
    """Their elements, of two dimensions."""

    numbers: Box
    """The sorted numbers; those from `count` on go nowhere."""

    order: Box
    """Which row has the place of each."""

    first: Box
    """Where the run of each number up to `count` begins."""

    count: Index
    """Rows of the table."""

    @staticmethod
    def of(call: Call, rows: Box, numbers: Box, count: Index) -> Runs:
        """Rows that go to rows `numbers` of a table of `count`; others go nowhere."""
        length, device = rows.size[0], rows.device

        def layout(dtype: DType, size: Index) -> Layout:
            return Layout(dtype=dtype, size=(size,), stride=(as_index(1),), device=device)

        ordered, order = call_library(
            call,
            aten.sort.stable,
            (numbers,),
            {"stable": True, "dim": 0},
            [layout(numbers.dtype, length), layout(DType.I64, length)],
        )
        known = call.lazy((count + 1,), numbers.dtype, lambda at: call.index(at[0], numbers.dtype))
        (first,) = call_library(
            call,
            aten.searchsorted.Tensor,
            (ordered, known),
            {"out_int32": True},
            [layout(DType.I32, count + 1)],
        )
        return Runs(call, rows, ordered, order, first, count)

    def table(self) -> Box:
        """The sum of each run."""
        return self.sums(self.count, self.run)

    def taken(self) -> Box:
        """The same, taken from sums by the place at which a run begins."""
        call, (length, width) = self.call, self.rows.size
        sums = self.sums(length, self.run_from)
        call.builder.realise(sums)

        def element(at: Position) -> Scalar:
            row, column = at
            begin, end = self.run(row)
            return call.read(sums, (begin, column)).masked(call.index(begin) < call.index(end), 0)

        return call.lazy((self.count, width), sums.dtype, element)

    def sums(self, runs: Index, run: Callable[[Index], tuple[Index, Index]]) -> Box:
        """The sum of each of so many runs, which have these places."""
        call, (length, width) = self.call, self.rows.size
        count = length // BLOCK
        blocks = self.blocks()
        size = (runs, width)

        def head(at: Position) -> Scalar:
            row, column, place = at
            begin, end = run(row)
            return self.row(begin + place, column, place, self.head_end(begin, end) - begin)

        def middle(at: Position) -> Scalar:
            row, column, place = at
            begin, end = run(row)
            past = begin // BLOCK + 1
            block = call.builder.expressions.indirect(
                call.index(past + place).value, count, wrap=False, check=False
            )
            is_inside = call.index(place) < call.index(end // BLOCK - past)
            return call.read(blocks, (block, column)).masked(is_inside, 0)

        def tail(at: Position) -> Scalar:
            row, column, place = at
            begin, end = run(row)
            past = maximum(end // BLOCK * BLOCK, self.head_end(begin, end))
            return self.row(past + place, column, place, end - past)

        def summed(length: Index, element: Any) -> Box:
            return _without_last(call, call.reduce("sum", (*size, length), (2,), element))

        block = as_index(BLOCK)
        parts = [summed(block, head), summed(count, middle), summed(block, tail)]

        def together(at: Position) -> Scalar:
            first, *others = (call.read(part, at) for part in parts)
            for other in others:
                first = first + other
            return first

        return call.lazy(size, parts[0].dtype, together)

    def blocks(self) -> Box:
        """The sum of each block that lies within a run, else 0."""
        call, (length, width) = self.call, self.rows.size
        count = length // BLOCK

        def element(at: Position) -> Scalar:
            block, column, place = at
            begin = block * BLOCK
            one = call.read(self.numbers, (begin,))
            other = call.read(self.numbers, (begin + (BLOCK - 1),))
            is_whole = one.apply("eq", other) & (one < call.index(self.count, one.dtype))
            places = is_whole.where(call.number(BLOCK, DType.I64), 0)
            element = call.read(self.rows, (self.number(begin + place), column))
            return element.masked(call.index(place) < places, 0)

        size = (count, width, as_index(BLOCK))
        return _without_last(call, call.reduce("sum", size, (2,), element))

    def row(self, place: Index, column: Index, step: Index, steps: Index) -> Scalar:
        """An element of the row that has a place in order, where `step` is below `steps`."""
        call = self.call
        element = call.read(self.rows, (self.number(place), column))
        return element.masked(call.index(step) < call.index(steps), 0)

    def number(self, place: Index) -> Index:
        """Which row has a place in order."""
        own = self.call.read(self.order, (place,), DType.I64)
        return self.indirect(own, self.rows.size[0])

    def run(self, row: Index) -> tuple[Index, Index]:
        """The place at which a run begins, and that behind its last."""
        most = self.rows.size[0] + 1
        begin, end = (
            self.indirect(self.call.read(self.first, (place,), DType.I64), most)
            for place in (row, row + 1)
        )
        return begin, end

    def run_from(self, place: Index) -> tuple[Index, Index]:
        """A place, and that behind the run that begins there; the same, if none does."""
        call = self.call
        own = call.read(self.numbers, (place,), DType.I64)
        before = call.read(self.numbers, (maximum(place - 1, as_index(0)),), DType.I64)
        last = call.index(self.count - 1)
        begins = call.index(place).apply("eq", 0) | own.apply("ne", before)
        row = own.apply("minimum", last).apply("maximum", 0)
        behind = self.indirect(row + 1, self.count + 1)
        end = call.read(self.first, (behind,), DType.I64)
        end = (begins & (own <= last)).where(end, call.index(place))
        return place, self.indirect(end, self.rows.size[0] + 1)

    def indirect(self, value: Scalar, size: Index) -> Index:
        return self.call.builder.expressions.indirect(value.value, size, wrap=False, check=False)

    @staticmethod
    def head_end(begin: Index, end: Index) -> Index:
        """Where the places of a run end that lie in the block in which it begins."""
        return minimum(end, (begin // BLOCK + 1) * BLOCK)
