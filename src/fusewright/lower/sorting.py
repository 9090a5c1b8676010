"""Sorting short rows: the place of an element is the number of those that come before it.

    place[i] = number of j with x[j] before x[i], or equal to it and j < i
    order[k] = the i whose place is k;  sorted[k] = x[order[k]]

That compares each pair, in vectors and without a branch, and keeps the order of equals. Long rows
are the library's, and so are sorts that promise no order of equals, of which eager has its own.
"""

from __future__ import annotations

from typing import Any, Final

from fusewright.ir.dtype import DType
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.rules import rule
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import dimension

LONGEST_ROW: Final = 128
"""Elements of a row up to which comparing all pairs is faster than sorting them."""


@rule("aten.sort.stable")
def sort_stable(
    call: Call, x: Box, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    """The elements in order, and where each of them was."""
    if not stable:
        return NotImplemented
    if x.rank == 0:
        first = call.elementwise(lambda at: call.number(0, DType.I64), 1)
        return call.elementwise(lambda at: call.stored(x, at)), first
    along = dimension(dim, x.rank)
    length = x.size[along]
    if length.upper is None or length.upper > LONGEST_ROW:
        return NotImplemented
    call.realise_unless_free(x)

    def moved(at: Position, place: Any) -> Position:
        return (*at[:along], place, *at[along + 1 :])

    pairs = (*x.size, length)

    def precedes(at: Position) -> Scalar:
        """Whether element `at[-1]` of a row comes before element `at[along]`."""
        *point, place = at
        element = call.stored(x, tuple(point))
        other = call.stored(x, moved(tuple(point), place))
        is_earlier = call.index(place, DType.I32) < call.index(point[along], DType.I32)
        before = is_earlier.where(
            _not_behind(other, element, descending), ~_not_behind(element, other, descending)
        )
        return before.cast(DType.I32)

    places = call.reduce("sum", pairs, (x.rank,), precedes)

    def taken(at: Position) -> Scalar:
        """The number of element `at[-1]`, if its place is `at[along]`; else 0."""
        *point, number = at
        place = call.read(places, (*moved(tuple(point), number), at[-1] * 0))
        is_here = place.apply("eq", call.index(point[along], DType.I32))
        return is_here.where(call.index(number, DType.I32), 0)

    order = call.reduce("sum", pairs, (x.rank,), taken)

    def position(at: Position) -> Scalar:
        return call.read(order, (*at, at[along] * 0), DType.I64)

    def element(at: Position) -> Scalar:
        indirect = call.builder.expressions.indirect
        source = indirect(position(at).value, length, wrap=False, check=False)
        return call.raw(x, moved(at, source))

    return call.elementwise(element), call.elementwise(position, 1)


def _not_behind(x: Scalar, y: Scalar, descending: bool) -> Scalar:
    """Whether `x` comes before `y` or is equal to it; NaN is greater than all numbers."""
    if descending:
        x, y = y, x
    before = x <= y
    return before | y.apply("isnan") if y.dtype.is_float else before
