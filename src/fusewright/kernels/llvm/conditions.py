"""Conditions on a loop over lanes that are known while code is written, and the loop cut in parts,
so that most of it is free of them.

A row of max_pool1d(x, 3, 2, 1), 56 windows in vectors of 16:

    x[2*i0 - 1] where 2*i0 - 1 >= 0      i0 < 16       the mask is a constant: all lanes but one
                                         16 <= i0      the mask holds, and loads need none
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise

from fusewright.ir.dtype import DType
from fusewright.ir.index import Compound, Index, LoopSymbol, Symbol, as_index, integer
from fusewright.ir.relations import COMPARISONS
from fusewright.ir.value import Apply, Constant, IndexValue, Value
from fusewright.records import record

LARGEST_BODY = 256
"""A loop whose stages have more values than this is not cut: its code would be twice as long."""


@record
class Condition:
    """`relation` between `step * symbol + rest` and 0."""

    relation: str
    """One of `COMPARISONS`, which Python's `operator` has by the same names."""

    step: int
    rest: int

    def holds(self, number: int) -> bool:
        """Whether it holds where the loop variable is `number`."""
        compare: Callable[[int, int], bool] = getattr(operator, self.relation)
        return compare(self.step * number + self.rest, 0)

    @property
    def borders(self) -> tuple[int, ...]:
        """Numbers beside which the condition changes: some n where it differs at n - 1 and n."""
        near = -self.rest // self.step
        return tuple(n for n in range(near - 1, near + 3) if self.holds(n - 1) != self.holds(n))


def known_truths(
    value: Value, symbol: Symbol, count: int, ends: tuple[int, int] | None
) -> Sequence[bool] | None:
    """A condition on the loop over lanes, for each of `count` lanes or once for all, where it is
    known: because it holds in all of the loop, which goes from the first of `ends` to the last, or
    in none, because the loop is one vector, or because it recurs, as `i % 2 == 0` does.
    """
    condition = condition_on(value, symbol)
    if condition is None:
        return _recurring_truths(value, symbol, count)
    if ends is None:
        return None
    first, last = ends
    if not any(first < border <= last for border in condition.borders):
        return (condition.holds(first),)
    if last - first < count:
        return [condition.holds(first + lane) for lane in range(count)]
    return None


def _recurring_truths(value: Value, symbol: Symbol, count: int) -> Sequence[bool] | None:
    """A condition on remainders of a loop variable alone, which recurs in each vector."""
    difference = _difference(value)
    if difference is None or difference.is_constant:
        return None
    for _, atoms in difference.terms:
        (atom, *others) = atoms
        if others or not isinstance(atom, Compound) or atom.operator != "%":
            return None
        if not atom.right.is_constant or count % int(atom.right):
            return None
        if not (atom.left - symbol).is_constant:
            return None
    assert isinstance(value, Apply)
    numbers = (difference.substitute({symbol: integer(lane)}) for lane in range(count))
    return [Condition(value.operation, 1, int(number)).holds(0) for number in numbers]


def condition_on(value: Value, symbol: Symbol) -> Condition | None:
    """The condition on a loop variable that a value is, if it is one on that variable alone."""
    difference = _difference(value)
    step = None if difference is None else difference.stride(symbol)
    if difference is None or step is None or not step.is_constant or step == 0:
        return None
    rest = difference - step * symbol
    assert isinstance(value, Apply)
    return Condition(value.operation, int(step), int(rest)) if rest.is_constant else None


def _difference(value: Value) -> Index | None:
    """What a comparison of two indices compares with 0."""
    if not isinstance(value, Apply) or value.operation not in COMPARISONS:
        return None
    left, right = map(_index, value.arguments)
    return None if left is None or right is None else left - right


def _index(value: Value) -> Index | None:
    match value:
        case IndexValue(index=index, dtype=DType.I64, indirect=()):
            return index
        case Constant(value=number, dtype=DType.I64):
            return as_index(int(number))
    return None


def middle(values: Sequence[Value], symbol: LoopSymbol, lanes: int) -> tuple[int, int] | None:
    """The longest part of a loop in which no condition on its variable changes: it begins at a
    whole step of so many lanes, and holds one. None where it is all of the loop, or there is none.
    """
    if not symbol.extent.is_constant or len(values) > LARGEST_BODY:
        return None
    count = int(symbol.extent)
    conditions = (condition_on(value, symbol) for value in values)
    borders = {n for condition in conditions if condition for n in condition.borders}
    ends = sorted({0, count, *(n for n in borders if 0 < n < count)})
    if len(ends) <= 2:
        return None
    parts = [
        (-(-start // lanes) * lanes, stop if stop == count else stop // lanes * lanes)
        for start, stop in pairwise(ends)
    ]
    start, stop = max(parts, key=lambda part: part[1] - part[0])
    return (start, stop) if stop - start >= lanes else None
