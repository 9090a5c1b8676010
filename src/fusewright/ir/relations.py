"""Relations of two integers: `a == b`, `a != b`, `a >= b` and `a < b`.

Each is one of three forms of a difference, so that equal statements are equal objects: `a < b` is
`b - a - 1 >= 0`, and its negation `a - b >= 0`. The prover, `ir/proof.py`, tells which
hold.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from functools import reduce
from math import gcd
from typing import Final

from fusewright.ir.index import Index, IndexLike, Symbol, as_index, integer, monomial, sum_of
from fusewright.records import record


class RelationKind(enum.Enum):
    """How the difference of a relation compares with zero."""

    ZERO = "== 0"
    NOT_ZERO = "!= 0"
    NOT_NEGATIVE = ">= 0"


@record
class Relation:
    """`difference == 0`, `difference != 0` or `difference >= 0`."""

    kind: RelationKind
    difference: Index

    def __str__(self) -> str:
        left, right = _sides(self.difference)
        return f"{left} {self.kind.value.split()[0]} {right}"

    def negation(self) -> Relation:
        """The relation that holds where this one does not."""
        match self.kind:
            case RelationKind.ZERO:
                return Relation(RelationKind.NOT_ZERO, self.difference)
            case RelationKind.NOT_ZERO:
                return Relation(RelationKind.ZERO, self.difference)
        return nonnegative(-self.difference - 1)

    def free(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        return self.difference.free()

    def rewritten(self, function: Callable[[Index], Index]) -> Relation:
        """The same said of what `function` makes of the difference."""
        difference = function(self.difference)
        if self.kind is RelationKind.NOT_NEGATIVE:
            return nonnegative(difference)
        return Relation(self.kind, _reduced(difference))

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it is true for these values of the symbols, by name."""
        return self.holds_at(self.difference.evaluate(values))

    def holds_at(self, number: int) -> bool:
        """Whether it is true where its difference is this number."""
        match self.kind:
            case RelationKind.ZERO:
                return number == 0
            case RelationKind.NOT_ZERO:
                return number != 0
        return number >= 0


def equal(left: IndexLike, right: IndexLike) -> Relation:
    """`left == right`; signs and common factors do not matter."""
    return Relation(RelationKind.ZERO, _reduced(as_index(left) - right))


def not_equal(left: IndexLike, right: IndexLike) -> Relation:
    """`left != right`."""
    return equal(left, right).negation()


def at_least(left: IndexLike, right: IndexLike) -> Relation:
    """`left >= right`."""
    return nonnegative(as_index(left) - right)


def at_most(left: IndexLike, right: IndexLike) -> Relation:
    """`left <= right`."""
    return at_least(right, left)


def below(left: IndexLike, right: IndexLike) -> Relation:
    """`left < right`."""
    return nonnegative(as_index(right) - left - 1)


COMPARISONS: Final[dict[str, Callable[[IndexLike, IndexLike], Relation]]] = {
    "lt": below,
    "le": at_most,
    "gt": lambda left, right: below(right, left),
    "ge": at_least,
    "eq": equal,
    "ne": not_equal,
}
"""By comparing operation of `ir.ops`, what it says of two indices."""


def nonnegative(difference: Index) -> Relation:
    """`difference >= 0`, with the factors that all its terms have left out."""
    difference = _without_positive_factors(difference)
    factor = reduce(gcd, (coefficient for coefficient, _ in difference.terms), 0)
    if factor > 1:
        difference = _divided(difference, factor)
    return Relation(RelationKind.NOT_NEGATIVE, difference)


def _reduced(difference: Index) -> Index:
    """An index that is zero where `difference` is: no common factor, the first sign positive."""
    difference = _without_positive_factors(difference)
    if not difference.terms:
        return difference
    factor = reduce(gcd, (coefficient for coefficient, _ in difference.terms), difference.constant)
    return _divided(difference, -factor if difference.terms[0][0] < 0 else factor)


def _divided(difference: Index, factor: int) -> Index:
    """`difference` divided by a factor of all its terms, the constant rounded down."""
    if factor == 1:
        return difference
    terms = tuple((coefficient // factor, atoms) for coefficient, atoms in difference.terms)
    return Index(terms, difference.constant // factor)


def _without_positive_factors(difference: Index) -> Index:
    """An index of the same sign as `difference` with positive factors divided out: `s1*s1 - s1` is
    `s1*(s1 - 1)`, and `s1` is positive, so that the result is `s1 - 1`.
    """
    if difference.constant or len(difference.terms) < 2:
        return difference
    for atom in dict.fromkeys(difference.terms[0][1]):
        lower, _ = atom.bounds()
        if lower is None or lower < 1 or any(atom not in atoms for _, atoms in difference.terms):
            continue
        rest = []
        for coefficient, atoms in difference.terms:
            position = atoms.index(atom)
            rest.append((coefficient, atoms[:position] + atoms[position + 1 :]))
        return _without_positive_factors(sum_of(rest))
    return difference


def _sides(difference: Index) -> tuple[Index, Index]:
    """`left` and `right` with `difference == left - right`, each without subtractions."""
    left, right = integer(max(difference.constant, 0)), integer(max(-difference.constant, 0))
    for coefficient, atoms in difference.terms:
        if coefficient > 0:
            left = left + monomial(coefficient, atoms)
        else:
            right = right + monomial(-coefficient, atoms)
    return left, right
