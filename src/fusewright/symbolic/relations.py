"""Statements about sizes: `a == b`, `a >= b`, and their combinations; comparisons of real numbers.

A comparison of integers is one of three forms of a difference, so that equal statements are equal
objects: `a < b` is `b - a - 1 >= 0`, and its negation `a - b >= 0`.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from math import gcd, lcm

from fusewright.ir.index import (
    Compound,
    Index,
    IndexLike,
    Symbol,
    as_index,
    integer,
    maximum,
    minimum,
)
from fusewright.ir.intervals import Bound
from fusewright.records import record
from fusewright.symbolic.real import Operand, bounds, evaluate, free_in_real, with_indices


class Kind(enum.Enum):
    """What a relation says of its difference."""

    ZERO = "== 0"
    NOT_ZERO = "!= 0"
    NOT_NEGATIVE = ">= 0"


@record
class Relation:
    """`difference == 0`, `difference != 0` or `difference >= 0`."""

    kind: Kind
    difference: Index

    def __str__(self) -> str:
        left, right = _sides(self.difference)
        return f"{left} {self.kind.value.split()[0]} {right}"

    def negation(self) -> Relation:
        """What holds where this does not."""
        match self.kind:
            case Kind.ZERO:
                return Relation(Kind.NOT_ZERO, self.difference)
            case Kind.NOT_ZERO:
                return Relation(Kind.ZERO, self.difference)
        return _not_negative(-self.difference - 1)

    def free(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        return self.difference.free()

    def indicator(self) -> Index:
        """1 where it is true, else 0."""
        match self.kind:
            case Kind.NOT_NEGATIVE:
                return maximum(minimum(self.difference + 1, 1), 0)
            case Kind.NOT_ZERO:
                return 1 - self.negation().indicator()
        sides = (self.difference, -self.difference)
        above, below = (Relation(Kind.NOT_NEGATIVE, side).indicator() for side in sides)
        return above * below

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it is true for these values of the symbols, by name."""
        return self.holds_at(self.difference.evaluate(values))

    def known(self) -> bool | None:
        """Whether it holds by the ranges and factors of the symbols alone; None: that depends."""
        known = self._within(self.difference.bounds())
        if known is None:
            known = self._within(tight_bounds(self.difference))
        return self._within(_bounds_by_remainders(self.difference)) if known is None else known

    def _within(self, bounds: tuple[Bound, Bound]) -> bool | None:
        """Whether it holds for all values of the difference within these bounds."""
        lower, upper = bounds
        if lower is not None and lower == upper:
            return self.holds_at(lower)
        if self.kind is Kind.NOT_NEGATIVE:
            if lower is not None and lower >= 0:
                return True
            return False if upper is not None and upper < 0 else None
        apart = (
            (lower is not None and lower > 0)
            or (upper is not None and upper < 0)
            or _never_zero(self.difference)
        )
        return self.kind is Kind.NOT_ZERO if apart else None

    def holds_at(self, number: int) -> bool:
        match self.kind:
            case Kind.ZERO:
                return number == 0
            case Kind.NOT_ZERO:
                return number != 0
        return number >= 0


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
        """What holds where this does not."""
        return RealRelation(self.comparison, self.left, self.right, not self.outcome)

    def free(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        return free_in_real(self.left) | free_in_real(self.right)

    def holds(self, values: Mapping[str, float]) -> bool:
        """Whether it is true for these values of the symbols, by name."""
        left, right = evaluate(self.left, values), evaluate(self.right, values)
        return COMPARISONS[self.comparison](left, right) is self.outcome

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


def equal(left: IndexLike, right: IndexLike) -> Relation:
    """`left == right`; signs and common factors do not matter."""
    return Relation(Kind.ZERO, _reduced(as_index(left) - right))


def not_equal(left: IndexLike, right: IndexLike) -> Relation:
    """`left != right`."""
    return equal(left, right).negation()


def at_least(left: IndexLike, right: IndexLike) -> Relation:
    """`left >= right`."""
    return _not_negative(as_index(left) - right)


def at_most(left: IndexLike, right: IndexLike) -> Condition:
    """`left <= right`."""
    return at_least(right, left)


def below(left: IndexLike, right: IndexLike) -> Relation:
    """`left < right`."""
    return _not_negative(as_index(right) - left - 1)


def negation(condition: Condition) -> Condition:
    """What holds where `condition` does not."""
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
        case Relation(Kind.NOT_NEGATIVE, difference):
            return _not_negative(function(difference))
        case Relation(kind, difference):
            return Relation(kind, _reduced(function(difference)))
        case RealRelation(comparison, left, right, outcome):
            left, right = with_indices(left, function), with_indices(right, function)
            return RealRelation(comparison, left, right, outcome)
        case All(terms):
            return All(tuple(rewrite(term, function) for term in terms))
        case Any(terms):
            return Any(tuple(rewrite(term, function) for term in terms))


def _not_negative(difference: Index) -> Relation:
    """`difference >= 0`, with the factors that all its terms have left out."""
    difference = _without_positive_factors(difference)
    factor = reduce(gcd, (coefficient for coefficient, _ in difference.terms), 0)
    if factor > 1:
        terms = tuple((coefficient // factor, atoms) for coefficient, atoms in difference.terms)
        difference = Index(terms, difference.constant // factor)
    return Relation(Kind.NOT_NEGATIVE, difference)


def tight_bounds(index: Index) -> tuple[Bound, Bound]:
    """Bounds of `index`; where it is unknown whether a sum of products stays above 0, its symbols
    are counted from their lower bounds on.

    `s0*s1 - s1` with `s0, s1 >= 2` is `s*t + s + 2*t + 2 >= 2` with `s, t >= 0`.
    """
    lower, upper = index.bounds()
    if lower is not None and upper is not None:
        return lower, upper
    counted = index.substitute(
        {
            symbol: Symbol(symbol.name, 0, _less(symbol.upper, symbol.lower)).index + symbol.lower
            for symbol in index.free()
            if symbol.lower
        }
    )
    least, most = counted.bounds()
    return lower if least is None else least, upper if most is None else most


def by_remainders(index: Index) -> tuple[Index, int]:
    """A multiple of `index` without quotients by constants, and how often it is that: twice
    `s - s // 2` is `s + s % 2`.
    """
    quotients = [
        (coefficient, atoms[0])
        for coefficient, atoms in index.terms
        if len(atoms) == 1 and isinstance(atoms[0], Compound) and _divides_by_constant(atoms[0])
    ]
    scale = reduce(lcm, (quotient.right.constant for _, quotient in quotients), 1)
    whole = index * scale
    for coefficient, quotient in quotients:
        rest = quotient.left - quotient.left % quotient.right
        whole = whole - Index(((coefficient * scale, (quotient,)),), 0)
        whole = whole + rest * (coefficient * scale // quotient.right.constant)
    return whole, scale


def _bounds_by_remainders(index: Index) -> tuple[Bound, Bound]:
    """Bounds of `index` where it has quotients by constants."""
    whole, scale = by_remainders(index)
    if scale == 1:
        return None, None
    lower, upper = tight_bounds(whole)
    least = None if lower is None else -(-lower // scale)
    return least, None if upper is None else upper // scale


def _divides_by_constant(compound: Compound) -> bool:
    return compound.operator == "//" and compound.right.is_constant


def _less(bound: Bound, by: int) -> Bound:
    return None if bound is None else bound - by


def _reduced(difference: Index) -> Index:
    """What is zero where `difference` is: no common factor, the first sign positive."""
    difference = _without_positive_factors(difference)
    if not difference.terms:
        return difference
    factor = reduce(gcd, (coefficient for coefficient, _ in difference.terms), difference.constant)
    if difference.terms[0][0] < 0:
        factor = -factor
    if factor == 1:
        return difference
    terms = tuple((coefficient // factor, atoms) for coefficient, atoms in difference.terms)
    return Index(terms, difference.constant // factor)


def _without_positive_factors(difference: Index) -> Index:
    """What has the sign of `difference`: `s1*s1 - s1` is `s1*(s1 - 1)`, and `s1` is positive."""
    if difference.constant or len(difference.terms) < 2:
        return difference
    for atom in dict.fromkeys(difference.terms[0][1]):
        lower, _ = atom.bounds()
        if lower is None or lower < 1 or any(atom not in atoms for _, atoms in difference.terms):
            continue
        rest = integer(0)
        for coefficient, atoms in difference.terms:
            position = atoms.index(atom)
            others = atoms[:position] + atoms[position + 1 :]
            rest = rest + (Index(((coefficient, others),), 0) if others else coefficient)
        return _without_positive_factors(rest)
    return difference


def _never_zero(difference: Index) -> bool:
    """Whether the variable part is a multiple of something that the constant is not."""
    variable = (difference - difference.constant).divisor
    return variable > 1 and difference.constant % variable != 0


def _sides(difference: Index) -> tuple[Index, Index]:
    """`left` and `right` with `difference == left - right`, each without subtractions."""
    left, right = integer(max(difference.constant, 0)), integer(max(-difference.constant, 0))
    for coefficient, atoms in difference.terms:
        if coefficient > 0:
            left = left + Index(((coefficient, atoms),), 0)
        else:
            right = right + Index(((-coefficient, atoms),), 0)
    return left, right
