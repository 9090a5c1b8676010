"""Judges memory accesses, under the masks that guard them: within a buffer, outside it, or unknown.

A *condition* is an index expression known to be >= 0 where an access happens:
`masked lt(index i0, 64), load x[…]` loads only where `63 - i0 >= 0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from fusewright.ir.index import (
    Index,
    Symbol,
    integer,
    known_less,
    maximum_value,
)
from fusewright.ir.value import Apply, Constant, IndexValue, Masked, Value, children, postorder

Conditions = frozenset[Index]

ALWAYS: Conditions = frozenset()
"""No condition: the access happens at every point."""

_GUARDED: Conditions = frozenset({integer(0)})
"""Some condition, of which nothing is known."""

_STEPS = 200
"""Attempts before a proof is given up."""


class Verdict(Enum):
    """What is known of one access."""

    INSIDE = auto()
    OUTSIDE = auto()
    UNKNOWN = auto()


def judge_access(
    index: Index,
    capacity: Index,
    loops: Iterable[Symbol],
    conditions: Conditions = ALWAYS,
) -> Verdict:
    """Whether `0 <= index < capacity` at every point of `loops` where the conditions hold.

    OUTSIDE is answered only for accesses without conditions, when some point surely lies outside.
    """
    if any(symbol.extent == 0 for symbol in loops):
        return Verdict.INSIDE
    if known_nonnegative(index, conditions) and known_nonnegative(capacity - 1 - index, conditions):
        return Verdict.INSIDE
    if not conditions and _reaches_outside(index, capacity):
        return Verdict.OUTSIDE
    return Verdict.UNKNOWN


def known_nonnegative(expression: Index, conditions: Conditions = ALWAYS) -> bool:
    """True when `expression >= 0` is proved for all values of the symbols that meet the conditions.

    An expression is proved by its own bounds; or, for a condition `c >= 0` and a factor `k >= 0`,
    by proving `expression - k*c`. The factors tried are those that cancel a term.
    """
    steps = iter(range(_STEPS))

    def prove(goal: Index, left: Conditions) -> bool:
        if known_less(-1, goal):
            return True
        for condition in sorted(left, key=str):
            for factor in _cancelling(goal, condition):
                if next(steps, None) is None:
                    return False
                if prove(goal - condition * factor, left - {condition}):
                    return True
        return False

    return prove(expression, conditions)


def access_conditions(roots: tuple[Value, ...]) -> dict[int, Conditions]:
    """For each value below `roots`, by id, what holds wherever it is computed.

    These are the conditions of the masks that stand on every path to it.
    """
    found: dict[int, Conditions] = {id(root): ALWAYS for root in roots}
    for value in reversed(list(postorder(roots))):
        here = found[id(value)]
        for child in children(value):
            below = here
            if isinstance(value, Masked) and child is value.value and child is not value.mask:
                below = here | _GUARDED | mask_conditions(value.mask)
            known = found.get(id(child))
            found[id(child)] = below if known is None else known & below
    return found


def mask_conditions(mask: Value) -> Conditions:
    """The conditions that hold where a mask is true, as far as it compares index expressions."""
    match mask:
        case Apply(operation="bitwise_and", arguments=(left, right)):
            return mask_conditions(left) | mask_conditions(right)
        case Apply(operation="bitwise_not", arguments=(Apply() as inner,)):
            return _comparison(_OPPOSITE.get(inner.operation, ""), inner)
        case Apply(operation=operation):
            return _comparison(operation, mask)
        case _:
            return ALWAYS


_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "ne": "eq"}


def _comparison(operation: str, value: Apply) -> Conditions:
    if operation not in ("lt", "le", "gt", "ge", "eq"):
        return ALWAYS
    left, right = map(_as_index, value.arguments)
    if left is None or right is None:
        return ALWAYS
    match operation:
        case "lt":
            return frozenset({right - left - 1})
        case "le":
            return frozenset({right - left})
        case "gt":
            return frozenset({left - right - 1})
        case "ge":
            return frozenset({left - right})
        case _:
            return frozenset({left - right, right - left})


def _as_index(value: Value) -> Index | None:
    match value:
        case IndexValue(index=index):
            return index
        case Constant(value=int(number)):
            return integer(number)
        case _:
            return None


def _cancelling(goal: Index, condition: Index) -> Iterator[Index]:
    """Factors k >= 0 with which `goal - k*condition` loses a term of `goal`."""
    for step, atoms in condition.terms:
        if len(atoms) != 1:
            continue
        for coefficient, factors in goal.terms:
            if atoms[0] not in factors or coefficient % step or coefficient // step < 0:
                continue
            rest = list(factors)
            rest.remove(atoms[0])
            factor = (
                Index(((coefficient // step, tuple(rest)),), 0)
                if rest
                else integer(coefficient // step)
            )
            if factor.lower is not None and factor.lower >= 0:
                yield factor


def _reaches_outside(index: Index, limit: Index) -> bool:
    """True when some point surely has `index < 0` or `index >= limit`."""
    if known_less(index, 0) or known_less(limit - 1, index):
        return True
    if not _attains_its_bounds(index):
        return False
    return known_less(limit - 1, maximum_value(index)) or known_less(-maximum_value(-index), 0)


def _attains_its_bounds(index: Index) -> bool:
    """Each loop variable stands alone in one term, so all of them reach their ends at once."""
    variables: list[Symbol] = []
    for _, atoms in index.terms:
        for atom in atoms:
            if not isinstance(atom, Symbol):
                return False
            if atom.extent is not None:
                variables.append(atom)
            elif len(atoms) == 1:
                return False
    ends = maximum_value(index).free() | maximum_value(-index).free()
    return len(set(variables)) == len(variables) and ends.isdisjoint(variables)
