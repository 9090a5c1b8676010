"""The prover of relations between integers: all proofs of the compiler are made here.

    proves(below(i0 + 1, 2 * s0))                    of a loop i0 < s0, and a size s0 >= 2
    proves(at_least(s0 * s1, s1 + s0))               of sizes of at least 2
    proves(at_least(s0, s2), [at_least(s0, s1), at_least(s1, s2)])

A relation is proved for all values that the ranges of its symbols allow, and for which the given
relations hold. Each comes down to a difference that is not negative. Interval arithmetic shows it:
of the difference, or of an expression that is negative wherever the difference is, with loops at
their ends, symbols counted from their least values, or quotients multiplied out; or of what is left
when multiples of the given relations are subtracted.

What is not proved may hold all the same: the question is undecidable, as symbols are multiplied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache, reduce
from math import lcm
from typing import Final

from fusewright.ir.index import Compound, Index, LoopSymbol, SizeSymbol, Symbol, integer, monomial
from fusewright.ir.relations import Relation, RelationKind
from fusewright.ir.terms import without

REMEMBERED: Final = 4096
"""How many answers about ranges are remembered."""

STEPS: Final = 200
"""How often what is taken to hold is subtracted before a proof is given up."""


def proves(relation: Relation, assumptions: Collection[Relation] = ()) -> bool:
    """Whether `relation` is proved to hold wherever the relations in `assumptions` do."""
    if relation in assumptions:
        return True
    difference = relation.difference
    match relation.kind:
        case RelationKind.NOT_NEGATIVE:
            return is_nonnegative(difference, assumptions)
        case RelationKind.ZERO:
            return all(is_nonnegative(side, assumptions) for side in (difference, -difference))
    return (
        _is_no_multiple(difference)
        or is_nonnegative(difference - 1, assumptions)
        or is_nonnegative(-difference - 1, assumptions)
    )


class Given:
    """Relations that are taken to hold, and what they were found to prove: the same is asked again
    and again while a program is traced.
    """

    def __init__(self, relations: Iterable[Relation] = ()) -> None:
        self.relations = tuple(relations)
        self._stated = frozenset(self.relations)
        self._answers: dict[Relation, bool] = {}

    def also(self, *relations: Relation) -> Given:
        """These relations and others."""
        return Given((*self.relations, *relations))

    def states(self, relation: Relation) -> bool:
        """Whether `relation` is one of these, which takes no search."""
        return relation in self._stated

    def proves(self, relation: Relation) -> bool:
        """Whether `relation` is proved."""
        answer = self._answers.get(relation)
        if answer is None:
            answer = self._answers[relation] = proves(relation, self.relations)
        return answer

    def decide(self, relation: Relation) -> bool | None:
        """True where `relation` is proved, False where its negation is; else None."""
        if self.proves(relation):
            return True
        return False if self.proves(relation.negation()) else None


def decide(relation: Relation, assumptions: Collection[Relation] = ()) -> bool | None:
    """True where `relation` is proved, False where its negation is, None where neither is."""
    return Given(assumptions).decide(relation)


def is_nonnegative(index: Index, assumptions: Collection[Relation] = ()) -> bool:
    """Whether `index >= 0` is proved, as by `proves`."""
    if _is_nonnegative_by_ranges(index):
        return True
    return bool(assumptions) and _follows(index, _nonnegative_parts(assumptions))


# By ranges ----------------------------------------------------------------------------------------


@lru_cache(maxsize=REMEMBERED)
def _is_nonnegative_by_ranges(index: Index) -> bool:
    return any(form.lower is not None and form.lower > -scale for form, scale in _forms(index))


def _forms(index: Index) -> Iterator[tuple[Index, int]]:
    """Expressions that are never above a multiple of `index`, the quickest to find first, and which
    multiple: that of a negative number is at most its negative.
    """
    yield index, 1
    if index.is_constant:
        return
    least = minimum_value(index)
    if least is not index:
        yield least, 1
    yield counted_from_zero(least), 1
    whole, scale = without_quotients(least)
    if scale != 1:
        yield counted_from_zero(whole), scale
    for bound in without_extremes(least):
        yield counted_from_zero(bound), 1


def minimum_value(index: Index) -> Index:
    """An expression that is never above `index`, in which the loops are at their ends; their
    extents may be symbolic.

    A loop with a step known to be positive (negative) is at its first (last) value; one with a step
    of unknown sign stays.
    """
    ends: dict[Symbol, Index] = {}
    for symbol in index.free():
        if not isinstance(symbol, LoopSymbol):
            continue
        step = index.stride(symbol)
        if step is None:
            continue
        if step.lower is not None and step.lower >= 0:
            ends[symbol] = integer(0)
        elif step.upper is not None and step.upper <= 0:
            ends[symbol] = symbol.extent - 1
    return index.substitute(ends) if ends else index


def counted_from_zero(index: Index) -> Index:
    """`index` with its symbols counted from their lower bounds on.

    `s0*s1 - s1` with `s0, s1 >= 2` is `s0*s1 + s0 + 2*s1 + 2` with `s0, s1 >= 0`, never below 2.
    """
    counts = {
        symbol: SizeSymbol(
            symbol.name, 0, None if symbol.upper is None else symbol.upper - symbol.lower
        ).index
        + symbol.lower
        for symbol in index.free()
        if symbol.lower
    }
    return index.substitute(counts) if counts else index


def without_quotients(index: Index) -> tuple[Index, int]:
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
        whole = whole - monomial(coefficient * scale, (quotient,))
        whole = whole + rest * (coefficient * scale // quotient.right.constant)
    return whole, scale


def without_extremes(index: Index) -> Iterator[Index]:
    """Expressions never above `index` with an operand in place of each minimum that is subtracted
    and each maximum that is added: `s - min(1, s)` is at least `s - 1`, and at least 0.
    """
    extremes = [
        (coefficient, atoms[0])
        for coefficient, atoms in index.terms
        if len(atoms) == 1
        and isinstance(atoms[0], Compound)
        and atoms[0].operator == ("min" if coefficient < 0 else "max")
    ]
    for side in ("left", "right") if extremes else ():
        bound = index
        for coefficient, extreme in extremes:
            operand: Index = getattr(extreme, side)
            bound = bound - monomial(coefficient, (extreme,)) + operand * coefficient
        yield bound


def _divides_by_constant(compound: Compound) -> bool:
    return compound.operator == "//" and compound.right.is_constant


def _is_no_multiple(difference: Index) -> bool:
    """Whether `difference` is never 0 because the constant is no multiple of what divides the rest:
    `2*s0 + 1`.
    """
    divisor = (difference - difference.constant).divisor
    return divisor > 1 and difference.constant % divisor != 0


# By relations -------------------------------------------------------------------------------------


def _nonnegative_parts(assumptions: Collection[Relation]) -> tuple[Index, ...]:
    """Differences that are not negative where these relations hold, in an order that depends on
    their text alone.
    """
    parts: list[Index] = []
    for relation in assumptions:
        match relation.kind:
            case RelationKind.NOT_NEGATIVE:
                parts.append(relation.difference)
            case RelationKind.ZERO:
                parts += (relation.difference, -relation.difference)
    return tuple(sorted(parts, key=str))


def _follows(goal: Index, parts: tuple[Index, ...]) -> bool:
    """Whether `goal >= 0` follows by subtracting multiples of parts that are not negative, each at
    most once: those that cancel a term of it. Where that adds more terms than it cancels, only the
    quickest test is made, and nothing further is subtracted.
    """
    steps = iter(range(STEPS))

    def prove(goal: Index, parts: tuple[Index, ...]) -> bool:
        for position, part in enumerate(parts):
            for factor in _cancelling(goal, part):
                if next(steps, None) is None:
                    return False
                rest = goal - part * factor
                if rest.lower is not None and rest.lower >= 0:
                    return True
                if len(rest.terms) > len(goal.terms):
                    continue
                if _is_nonnegative_by_ranges(rest):
                    return True
                if prove(rest, parts[:position] + parts[position + 1 :]):
                    return True
        return False

    return prove(goal, parts)


def _cancelling(goal: Index, part: Index) -> Iterator[Index]:
    """Factors k >= 0 with which `goal - k*part` loses a term of `goal`."""
    for step, atoms in part.terms:
        for coefficient, factors in goal.terms:
            remaining = without(factors, atoms)
            if remaining is None or coefficient % step or coefficient // step < 0:
                continue
            factor = monomial(coefficient // step, remaining)
            if factor.lower is not None and factor.lower >= 0:
                yield factor
