"""Conditions on sizes: relations of integers, comparisons of real numbers, and combinations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from fusewright.ir.compounds import maximum, minimum
from fusewright.ir.index import Index, Symbol, product
from fusewright.ir.relations import Relation, RelationKind
from fusewright.records import record
from fusewright.symbolic.real import Operand, bounds, evaluate, free_in_real, with_indices


def is_same(left: float, right: float) -> bool:
    """Whether two numbers are equal, and zeros have one sign."""
    return left == right and math.copysign(1.0, left) == math.copysign(1.0, right)


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "is": is_same,
}
"""How real numbers compare."""


@record
class RealRelation:
    """Whether a comparison of real numbers, such as `left < right`, comes out as `outcome`. (With
    NaN, `not a < b` is another thing than `b <= a`.)
    """

    comparison: str
    """A key of `COMPARISONS`."""

    left: Operand
    right: Operand
    outcome: bool = True

    def __str__(self) -> str:
        text = f"{self.left} {self.comparison} {self.right}"
        return text if self.outcome else f"not {text}"

    def negation(self) -> RealRelation:
        """The relation that holds where this one does not."""
        return RealRelation(self.comparison, self.left, self.right, not self.outcome)

    def free(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        return free_in_real(self.left) | free_in_real(self.right)

    def holds(self, values: Mapping[str, float]) -> bool:
        """Whether it is true for these values of the symbols, by name."""
        left, right = evaluate(self.left, values), evaluate(self.right, values)
        return COMPARISONS[self.comparison](left, right) is self.outcome

    def rewritten(self, function: Callable[[Index], Index]) -> RealRelation:
        """The same said of sides whose indices are what `function` makes of them."""
        left, right = with_indices(self.left, function), with_indices(self.right, function)
        return RealRelation(self.comparison, left, right, self.outcome)

    def known(self) -> bool | None:
        """Whether it holds by the bounds of its sides alone; None: that depends."""
        ends = [(a, b) for a in bounds(self.left) for b in bounds(self.right)]
        answers = {COMPARISONS[self.comparison](a, b) for a, b in ends}
        if len(answers) > 1 or (self.comparison in ("==", "is") and len(set(ends)) > 1):
            return None
        return answers.pop() is self.outcome


@record
class All:
    """Every one of `terms` holds."""

    terms: tuple[Condition, ...]

    def __str__(self) -> str:
        return " and ".join(f"({term})" for term in self.terms)


@record
class Any:
    """At least one of `terms` holds."""

    terms: tuple[Condition, ...]

    def __str__(self) -> str:
        return " or ".join(f"({term})" for term in self.terms)


Condition = Relation | RealRelation | All | Any | bool


def indicator_index(relation: Relation) -> Index:
    """1 where `relation` is true, else 0."""
    difference = relation.difference
    match relation.kind:
        case RelationKind.NOT_NEGATIVE:
            return maximum(minimum(difference + 1, 1), 0)
        case RelationKind.NOT_ZERO:
            return 1 - indicator_index(relation.negation())
    sides = (Relation(RelationKind.NOT_NEGATIVE, side) for side in (difference, -difference))
    return product(map(indicator_index, sides))


def negation(condition: Condition) -> Condition:
    """The condition that holds where `condition` does not."""
    match condition:
        case bool():
            return not condition
        case Relation() | RealRelation():
            return condition.negation()
        case All(terms):
            return Any(tuple(negation(term) for term in terms))
        case Any(terms):
            return All(tuple(negation(term) for term in terms))


def free_in(condition: Condition) -> frozenset[Symbol]:
    """The symbols that occur in a condition."""
    match condition:
        case Relation() | RealRelation():
            return condition.free()
        case All(terms) | Any(terms):
            return frozenset().union(*map(free_in, terms))
    return frozenset()


def rewrite(condition: Condition, function: Callable[[Index], Index]) -> Condition:
    """`condition` with each difference replaced by what `function` makes of it."""
    match condition:
        case bool():
            return condition
        case Relation() | RealRelation():
            return condition.rewritten(function)
        case All(terms):
            return All(tuple(rewrite(term, function) for term in terms))
        case Any(terms):
            return Any(tuple(rewrite(term, function) for term in terms))
