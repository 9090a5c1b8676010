"""The prover against brute force: what it proves holds for all values in the ranges of the symbols,
wherever what it is given does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fusewright.ir.compounds import maximum, minimum
from fusewright.ir.index import Index, LoopSymbol
from fusewright.ir.proof import (
    Given,
    counted_from_zero,
    minimum_value,
    proves,
    without_extremes,
    without_quotients,
)
from fusewright.ir.relations import Relation, at_least, at_most, below, equal, not_equal
from fusewright.ir.sizes import size_symbol
from tests.ir.index_expressions import EXPRESSIONS, MANY, POINTS, Pair

BUILDERS: dict[Callable[[Index, Index], Relation], Callable[[int, int], bool]] = {
    equal: lambda left, right: left == right,
    not_equal: lambda left, right: left != right,
    at_least: lambda left, right: left >= right,
    at_most: lambda left, right: left <= right,
    below: lambda left, right: left < right,
}
BUILDER = st.sampled_from(list(BUILDERS))
SIDES = st.tuples(BUILDER, EXPRESSIONS, EXPRESSIONS)
Sides = tuple[Callable[[Index, Index], Relation], Pair, Pair]


def relation(sides: Sides) -> Relation:
    build, left, right = sides
    return build(left.index, right.index)


def holds(sides: Sides, point: dict[str, int]) -> bool:
    """Whether the relation holds at a point, as Python computes its sides."""
    build, left, right = sides
    return BUILDERS[build](left.compute(point), right.compute(point))


@MANY
@given(SIDES)
def test_a_relation_says_what_its_sides_do(sides: Sides) -> None:
    said = relation(sides)
    for point in POINTS:
        assert said.holds(point) is holds(sides, point), (said, point)
        assert said.negation().holds(point) is not holds(sides, point), (said.negation(), point)


@MANY
@given(SIDES)
def test_what_is_decided_is_so_everywhere(sides: Sides) -> None:
    answer = Given().decide(relation(sides))
    assume(answer is not None)
    assert {holds(sides, point) for point in POINTS} == {answer}, relation(sides)


@MANY
@given(SIDES, st.lists(SIDES, min_size=1, max_size=3))
def test_what_follows_holds_wherever_the_given_does(sides: Sides, known: list[Sides]) -> None:
    points = [point for point in POINTS if all(holds(each, point) for each in known)]
    answer = Given(map(relation, known)).decide(relation(sides))
    assume(answer is not None and points)
    assert {holds(sides, point) for point in points} == {answer}, relation(sides)


@MANY
@given(SIDES, SIDES)
def test_what_is_given_is_proved(sides: Sides, other: Sides) -> None:
    assert proves(relation(sides), [relation(other), relation(sides)])


@MANY
@given(EXPRESSIONS)
def test_forms_of_an_expression(pair: Pair) -> None:
    least, (whole, scale) = minimum_value(pair.index), without_quotients(pair.index)
    counted = counted_from_zero(pair.index)
    starts = {symbol.name: symbol.lower or 0 for symbol in pair.index.free()}
    for point in POINTS:
        assert least.evaluate(point) <= pair.compute(point)
        for bound in without_extremes(pair.index):
            assert bound.evaluate(point) <= pair.compute(point)
        assert whole.evaluate(point) == scale * pair.compute(point)
        from_zero = {name: value - starts.get(name, 0) for name, value in point.items()}
        assert counted.evaluate(from_zero) == pair.compute(point)


A, B, C = (size_symbol(name).index for name in ("a", "b", "c"))
ROW, COLUMN = LoopSymbol("i", A).index, LoopSymbol("j", B).index


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (below(ROW, A), ()),
        (below(A * COLUMN + ROW, A * B), ()),
        (at_least(A * B, A + B), ()),
        (below(A * B - B, A * B), ()),
        (at_least(A, A // 2 * 2), ()),
        (below((A + 1) // 2, A + 1), ()),
        (at_least(A, minimum(7, A)), ()),
        (at_least(A + B, minimum(A, B) + 2), ()),
        (at_least(maximum(A - 9, B) + A, B + 2), ()),
        (not_equal(2 * A + 1, 2 * B), ()),
        (not_equal(A, B), (not_equal(B, A),)),
        (at_least(A, C), (at_least(A, B), at_least(B, C))),
        (at_least(A * C, B * C), (at_least(A, B),)),
        (at_least(A * B, C), (at_least(A * B, C + 1),)),
        (equal(A * B, C), (equal(C, A * B),)),
        (equal(A, B), (at_least(A, B), at_least(B, A))),
        (below(ROW + COLUMN, A), (below(ROW, A - COLUMN),)),
    ],
)
def test_known_proofs(said: Relation, known: tuple[Relation, ...]) -> None:
    assert Given(known).decide(said) is True
    assert Given(known).decide(said.negation()) is False
    assert not known or Given().decide(said) is None


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (below(A, B), ()),
        (at_least(minimum(A, B), 3), ()),
        (at_least(A, maximum(A, B)), ()),
        (at_least(A, 3), ()),
        (equal(A, B), (at_least(A, B),)),
        (at_least(A, C), (at_least(A, B), at_least(C, B))),
        (at_least(A, B), (not_equal(A, B),)),
    ],
)
def test_what_may_or_may_not_hold(said: Relation, known: tuple[Relation, ...]) -> None:
    assert Given(known).decide(said) is None


def test_a_search_for_a_proof_ends() -> None:
    sizes = [size_symbol(f"s{number}").index for number in range(30)]
    known = [at_least(a * b, c) for a, b, c in zip(sizes, sizes[1:], sizes[2:], strict=False)]
    total = sizes[0] * sizes[1]
    for size in sizes[1:]:
        total = total - size
    assert Given(known).decide(at_least(total, 0)) is None
