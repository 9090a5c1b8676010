"""Sorting short rows: the place of an element is the number of those that come before it.

    place[i] = number of j with x[j] before x[i], or equal to it and j < i
    order[k] = the i whose place is k;  sorted[k] = x[order[k]]

That compares each pair, in vectors and without a branch, and keeps the order of equals. The first
elements in order, and the one at a given place, ask for fewer places. Long rows are the library's,
and on a CPU so is what promises no order of equals, of which eager has its own there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, integer
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.reductions import finish
from fusewright.lower.rules import rule
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import dimension

LONGEST_ROW: Final = {"cpu": 128, "cuda": 32}
"""Elements of a row up to which comparing all pairs is faster than sorting them, by kind of device.
On an H100 65,536 rows of 32 take 59 to 67 us to pick from (eager 105 to 173) and 100 to sort (eager
77), rows of 8 take 7 to 10 (52 to 165); a median of rows of 64 takes longer than eager's.
"""

ORDERS_EQUALS: frozenset[str] = frozenset({"cpu"})
"""Kinds of device on which eager's order of equals is kept where it is not promised. On a GPU it
may be another one for other lengths, and from call to call.
"""

INT: Final = DType.I32
"""The type of places."""

Place = Callable[[Position], Scalar]
"""The place in order, an i32, of the element that is wanted at a position."""


@rule("aten.sort.stable", "aten.sort.default")
def sort(
    call: Call, x: Box, dim: int = -1, descending: bool = False, *, stable: bool | None = False
) -> Any:
    """The elements in order, and where each of them was."""
    if x.rank == 0 and stable:
        first = call.elementwise(lambda at: call.number(0, DType.I64), 1)
        return call.elementwise(lambda at: call.stored(x, at)), first
    if x.rank == 0 or not _is_short(x, dim) or not (stable or _may_order_equals(x)):
        return NotImplemented
    along = dimension(dim, x.rank)
    numbers = _numbers(call, x, along, descending, x.size, lambda at: call.index(at[along], INT))
    return call.elementwise(_at_numbers(call, x, along, numbers)), _as_result(call, numbers, along)


@rule("aten.topk.default")
def topk(
    call: Call, x: Box, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    """The first `k` elements in order, and where each of them was."""
    if not sorted or not _has_places(x, dim):
        return NotImplemented
    along = dimension(dim, x.rank)
    size = call.results[0].size
    numbers = _numbers(call, x, along, largest, size, lambda at: call.index(at[along], INT))
    return call.elementwise(_at_numbers(call, x, along, numbers)), _as_result(call, numbers, along)


@rule("aten.kthvalue.default")
def kthvalue(call: Call, x: Box, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The element that has `k - 1` before it, and where it was."""
    if not isinstance(k, int) or not _has_places(x, dim):
        return NotImplemented
    return _one_of_each_row(call, x, dim, keepdim, lambda at: call.number(k - 1, INT))


@rule("aten.median.dim", "aten.nanmedian.dim")
def median(call: Call, x: Box, dim: int, keepdim: bool = False) -> Any:
    """The element in the middle, the lower one of two, and where it was. A row with a NaN has a
    NaN for its median, but for `nanmedian`, to which only numbers count.
    """
    if not _has_places(x, dim):
        return NotImplemented
    along = dimension(dim, x.rank)
    length = int(x.size[along])
    if not x.dtype.is_float:
        return _one_of_each_row(
            call, x, dim, keepdim, lambda at: call.number((length - 1) // 2, INT)
        )
    call.realise_unless_free(x)

    def is_number(at: Position) -> Scalar:
        return (~call.stored(x, at).apply("isnan")).cast(INT)

    counts = call.reduce("sum", x.size, (along,), is_number)

    def place(at: Position) -> Scalar:
        count = call.read(counts, at)
        if call.operator == "aten.median.dim":
            # NaN come last, the first of them behind all numbers.
            is_whole = count.apply("eq", length)
            return is_whole.where(call.number((length - 1) // 2, INT), count)
        return (count - 1).apply("maximum", 0).apply("shift_right", 1)

    return _one_of_each_row(call, x, dim, keepdim, place)


def _kind(x: Box) -> str:
    return x.device.partition(":")[0]


def _is_short(x: Box, dim: int) -> bool:
    length = x.size[dimension(dim, x.rank)]
    return length.upper is not None and length.upper <= LONGEST_ROW.get(_kind(x), 0)


def _may_order_equals(x: Box) -> bool:
    """Whether equals may be in another order than eager's, where none is promised."""
    return _kind(x) not in ORDERS_EQUALS


def _has_places(x: Box, dim: int) -> bool:
    """Whether places are compared by kernels for what picks some elements of rows, and knows how
    many there are. Eager picks no truth values.
    """
    if x.rank == 0 or x.dtype is DType.BOOL or not _may_order_equals(x) or not _is_short(x, dim):
        return False
    length = x.size[dimension(dim, x.rank)]
    return length.is_constant and length != 0


def _numbers(
    call: Call, x: Box, along: int, descending: bool, size: tuple[Index, ...], place: Place
) -> Box:
    """For each position of `size`, which is that of `x` but along the rows, the number within its
    row of the element whose place is wanted there. It has one more dimension, of one element.
    """
    length = x.size[along]
    call.realise_unless_free(x)

    def moved(point: list[Index], number: Index) -> Position:
        return (*point[:along], number, *point[along + 1 :])

    def precedes(at: Position) -> Scalar:
        """Whether element `at[-1]` of a row comes before element `at[along]`."""
        *point, number = at
        element = call.stored(x, tuple(point))
        other = call.stored(x, moved(point, number))
        is_earlier = call.index(number, INT) < call.index(point[along], INT)
        before = is_earlier.where(
            _not_behind(other, element, descending), ~_not_behind(element, other, descending)
        )
        return before.cast(INT)

    places = call.reduce("sum", (*x.size, length), (x.rank,), precedes)

    def taken(at: Position) -> Scalar:
        """The number of element `at[-1]`, if its place is the wanted one; else 0."""
        *point, number = at
        own = call.read(places, (*moved(point, number), number * 0))
        return own.apply("eq", place(tuple(point))).where(call.index(number, INT), 0)

    return call.reduce("sum", (*size, length), (x.rank,), taken)


def _at_numbers(call: Call, x: Box, along: int, numbers: Box) -> Callable[[Position], Scalar]:
    """The elements of `x` with these numbers."""

    def element(at: Position) -> Scalar:
        indirect = call.builder.expressions.indirect
        number = call.read(numbers, (*at, at[along] * 0), DType.I64)
        source = indirect(number.value, x.size[along], wrap=False, check=False)
        return call.raw(x, (*at[:along], source, *at[along + 1 :]))

    return element


def _as_result(call: Call, numbers: Box, along: int) -> Box:
    """The numbers as eager's second result."""
    return call.elementwise(lambda at: call.read(numbers, (*at, at[along] * 0), DType.I64), 1)


def _one_of_each_row(call: Call, x: Box, dim: int, keepdim: bool, place: Place) -> Any:
    """The element at a place of each row, and where it was, with the dimension kept or dropped."""
    along = dimension(dim, x.rank)
    size = tuple(integer(1) if d == along else extent for d, extent in enumerate(x.size))
    numbers = _numbers(call, x, along, False, size, place)
    values = call.lazy(size, x.dtype, _at_numbers(call, x, along, numbers))
    positions = call.lazy(size, INT, lambda at: call.read(numbers, (*at, at[along] * 0)))
    return (
        finish(call, values, (along,), keepdim, x.dtype),
        finish(call, positions, (along,), keepdim, DType.I64),
    )


def _not_behind(x: Scalar, y: Scalar, descending: bool) -> Scalar:
    """Whether `x` comes before `y` or is equal to it; NaN is greater than all numbers."""
    if descending:
        x, y = y, x
    before = x <= y
    return before | y.apply("isnan") if y.dtype.is_float else before
