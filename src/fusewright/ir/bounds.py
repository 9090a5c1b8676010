"""Judges memory accesses, under the masks that guard them: within a buffer, outside it, or unknown.

A *condition* is a relation that holds where an access happens: `masked lt(index i0, 64), load x[…]`
loads only where `i0 < 64`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from fusewright.ir.index import Index, LoopSymbol, Symbol, integer
from fusewright.ir.proof import minimum_value, proves
from fusewright.ir.relations import COMPARISONS, Relation, at_least, below, nonnegative
from fusewright.ir.value import Apply, Constant, IndexValue, Masked, Value, children, postorder

Conditions = frozenset[Relation]

ALWAYS: Conditions = frozenset()
"""No condition: the access happens at every point."""

_GUARDED: Conditions = frozenset({nonnegative(integer(0))})
"""Some condition, of which nothing is known."""


class Verdict(Enum):
    """Whether one access stays inside its buffer, as far as the analysis can tell."""

    INSIDE = auto()
    OUTSIDE = auto()
    UNKNOWN = auto()


def judge_access(
    index: Index,
    capacity: Index,
    loops: Iterable[LoopSymbol],
    conditions: Conditions = ALWAYS,
) -> Verdict:
    """Whether `0 <= index < capacity` at every point of `loops` where the conditions hold.

    OUTSIDE is answered only for accesses without conditions, when some point surely lies outside.
    """
    if any(symbol.extent == 0 for symbol in loops):
        return Verdict.INSIDE
    if proves(at_least(index, 0), conditions) and proves(below(index, capacity), conditions):
        return Verdict.INSIDE
    if not conditions and _reaches_outside(index, capacity):
        return Verdict.OUTSIDE
    return Verdict.UNKNOWN


def access_conditions(roots: tuple[Value, ...]) -> dict[int, Conditions]:
    """For each value below `roots`, by id, what holds wherever it is computed.

    These are the conditions of the masks that stand on every path to it.
    """
    conditions: dict[int, Conditions] = {id(root): ALWAYS for root in roots}
    for value in reversed(list(postorder(roots))):
        for child in children(value):
            on_path = conditions[id(value)]
            if isinstance(value, Masked) and child is value.value and child is not value.mask:
                on_path = on_path | _GUARDED | mask_conditions(value.mask)
            on_others = conditions.get(id(child))
            conditions[id(child)] = on_path if on_others is None else on_others & on_path
    return conditions


def mask_conditions(mask: Value) -> Conditions:
    """The conditions that hold where a mask is true, as far as it compares index expressions."""
    match mask:
        case Apply(operation="bitwise_and", arguments=(left, right)):
            return mask_conditions(left) | mask_conditions(right)
        case Apply(operation="bitwise_not", arguments=(Apply() as inner,)):
            relation = compared_indices(inner)
            return ALWAYS if relation is None else frozenset({relation.negation()})
        case Apply():
            relation = compared_indices(mask)
            return ALWAYS if relation is None else frozenset({relation})
        case _:
            return ALWAYS


def compared_indices(value: Apply) -> Relation | None:
    """The relation that a comparison of two indices states; None where it is something else."""
    relation = COMPARISONS.get(value.operation)
    if relation is None:
        return None
    left, right = map(_as_index, value.arguments)
    return None if left is None or right is None else relation(left, right)


def _as_index(value: Value) -> Index | None:
    match value:
        case IndexValue(index=index):
            return index
        case Constant(value=int(number)):
            return integer(number)
        case _:
            return None


def _reaches_outside(index: Index, limit: Index) -> bool:
    """True when some point surely has `index < 0` or `index >= limit`."""
    outside = (below(index, 0), at_least(index, limit))
    if any(map(proves, outside)):
        return True
    if not _attains_its_bounds(index):
        return False
    least, most = minimum_value(index), -minimum_value(-index)
    return proves(below(least, 0)) or proves(at_least(most, limit))


def _attains_its_bounds(index: Index) -> bool:
    """Each loop variable stands alone in one term, so all of them reach their ends at once."""
    variables: list[LoopSymbol] = []
    for _, atoms in index.terms:
        for atom in atoms:
            if not isinstance(atom, Symbol):
                return False
            if isinstance(atom, LoopSymbol):
                variables.append(atom)
            elif len(atoms) == 1:
                return False
    ends = minimum_value(index).free() | minimum_value(-index).free()
    return len(set(variables)) == len(variables) and ends.isdisjoint(variables)
