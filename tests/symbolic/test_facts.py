"""What is proved of symbolic sizes holds for all of them; what is decided holds for those seen."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewright.errors import DataDependent
from fusewright.ir.compounds import maximum, minimum
from fusewright.ir.index import Index, SizeSymbol, integer
from fusewright.ir.proof import Given
from fusewright.ir.relations import (
    at_least,
    below,
    equal,
    not_equal,
)
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import ConditionNode, IntegerNode, RealNode
from fusewright.symbolic.relations import (
    All,
    Any,
    Condition,
    negation,
)

NAMES = ("s0", "s1", "s2")
SAMPLE = tuple(itertools.product((2, 3, 4, 6, 9), (2, 3, 8), (2, 5, 12)))
"""Sizes to try for the three symbols."""


def indices(leaves: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
    """Expressions over `leaves`; divisors are positive."""
    numbers = st.integers(1, 6).map(integer)

    def grow(inner: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda p: p[0] + p[1]),
            pair.map(lambda p: p[0] - p[1]),
            pair.map(lambda p: p[0] * p[1]),
            pair.map(lambda p: minimum(*p)),
            pair.map(lambda p: maximum(*p)),
            st.tuples(inner, st.one_of(numbers, leaves)).map(lambda p: p[0] // p[1]),
            st.tuples(inner, st.one_of(numbers, leaves)).map(lambda p: p[0] % p[1]),
        )

    return st.recursive(st.one_of(leaves, numbers), grow, max_leaves=6)


SYMBOLS = {name: SizeSymbol(name, 2).index for name in NAMES}
INDICES = indices(st.sampled_from(list(SYMBOLS.values())))
BUILDERS: tuple[Callable[[Index, Index], Condition], ...] = (equal, not_equal, at_least, below)
RELATIONS = st.tuples(st.sampled_from(BUILDERS), INDICES, INDICES).map(lambda p: p[0](p[1], p[2]))
CONDITIONS = st.recursive(
    RELATIONS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda terms: All(tuple(terms))),
        st.lists(inner, min_size=1, max_size=3).map(lambda terms: Any(tuple(terms))),
        inner.map(negation),
    ),
    max_leaves=4,
)


def holds(condition: Condition, values: dict[str, int]) -> bool:
    match condition:
        case bool():
            return condition
        case All(terms):
            return all(holds(term, values) for term in terms)
        case Any(terms):
            return any(holds(term, values) for term in terms)
    return condition.holds(values)


def facts_with(hints: tuple[int, ...]) -> ShapeFacts:
    facts = ShapeFacts()
    for hint in hints:
        facts.size(hint)
    return facts


@settings(max_examples=300, deadline=None)
@given(CONDITIONS)
def test_what_is_proved_holds_for_all_sizes(condition: Condition) -> None:
    proved = facts_with((4, 3, 5)).prove(condition)
    if proved is not None:
        assert all(holds(condition, dict(zip(NAMES, v, strict=True))) == proved for v in SAMPLE)


@settings(max_examples=300, deadline=None)
@given(st.lists(CONDITIONS, min_size=1, max_size=5), st.sampled_from(SAMPLE))
def test_decisions_are_as_seen_and_hold_wherever_the_assumptions_do(
    conditions: list[Condition], hints: tuple[int, ...]
) -> None:
    facts = facts_with(hints)
    seen = dict(zip(NAMES, hints, strict=True))
    answers = [facts.decide(condition) for condition in conditions]
    assert answers == [holds(condition, seen) for condition in conditions]
    assert [facts.decide(condition) for condition in conditions] == answers
    for sizes in SAMPLE:
        values = dict(zip(NAMES, sizes, strict=True))
        if all(assumption.relation.holds(values) for assumption in facts.assumptions):
            assert [holds(condition, values) for condition in conditions] == answers


@settings(max_examples=200, deadline=None)
@given(st.lists(CONDITIONS, min_size=1, max_size=4), INDICES, st.sampled_from(SAMPLE))
def test_what_assumptions_make_of_an_expression_is_equal_to_it(
    conditions: list[Condition], index: Index, hints: tuple[int, ...]
) -> None:
    facts = facts_with(hints)
    for condition in conditions:
        facts.decide(condition)
    resolved = facts.resolve(index)
    for sizes in (*SAMPLE, hints):
        values = dict(zip(NAMES, sizes, strict=True))
        if all(assumption.relation.holds(values) for assumption in facts.assumptions):
            assert resolved.evaluate(values) == index.evaluate(values)
            lower, upper = resolved.bounds()
            assert (lower is None or lower <= resolved.evaluate(values)) and (
                upper is None or resolved.evaluate(values) <= upper
            )


def test_sizes_are_neither_zero_nor_one() -> None:
    facts = ShapeFacts()
    size = facts.size(7)
    assert facts.prove(equal(size, 1)) is False and facts.prove(equal(size, 0)) is False
    assert facts.prove(equal(size, 2)) is None and not facts.assumptions


def test_equal_sizes_become_one() -> None:
    facts = ShapeFacts()
    rows, columns = facts.size(7), facts.size(7)
    assert facts.decide(equal(rows, columns))
    assert facts.resolve(rows) == facts.resolve(columns)
    assert len(facts.assumptions) == 1 and facts.decide(equal(columns, rows))


def test_a_divisor_is_kept() -> None:
    facts = ShapeFacts()
    size = facts.size(12)
    assert facts.decide(equal(size % 4, 0))
    assert facts.resolve(size // 4 * 4) == facts.resolve(size)
    assert facts.prove(equal(size % 2, 0)) and facts.prove(at_least(size, 4))


@pytest.mark.parametrize("seed", range(3))
def test_products_of_sizes_are_compared_without_assuming(seed: int) -> None:
    facts = ShapeFacts()
    random.seed(seed)
    sizes = [facts.size(random.randrange(2, 30)) for _ in range(3)]
    whole = sizes[0] * sizes[1] * sizes[2]
    assert facts.prove(below(sizes[0] * sizes[1], whole))
    assert facts.prove(at_least(whole, sizes[2] * 4))
    assert facts.prove(below(sizes[0] - 1 + sizes[1] * (sizes[0] - 1), sizes[0] * (sizes[1] + 1)))


def test_nothing_more_is_assumed_once_closed() -> None:
    facts = ShapeFacts()
    size = facts.size(5)
    facts.is_closed = True
    assert facts.decide(at_least(size, 2))
    with pytest.raises(DataDependent, match="after the guards"):
        facts.decide(at_least(size, 3))


def test_sizes_that_depend_on_data_are_not_decided_but_may_be_promised() -> None:
    facts = ShapeFacts()
    count = facts.unknown_size()
    with pytest.raises(DataDependent):
        facts.decide(at_least(count, 4))
    assert facts.decide_or(at_least(count, 4), False) is False
    facts.assume(at_least(count, 4))
    assert facts.decide(at_least(count, 3)) and facts.prove(equal(count, 0)) is False


@pytest.mark.parametrize("is_even", [True, False])
def test_a_size_is_not_replaced_by_what_depends_on_data(is_even: bool) -> None:
    facts = ShapeFacts()
    size, count = facts.size(7), facts.unknown_size()
    if is_even:
        facts.assume(equal(count % 2, 0))
    facts.assume(equal(size, count // 2))
    assert facts.resolve(size) == size and facts.prove(equal(count // 2, size))
    assert (facts.resolve(count) == 2 * size) is is_even


@pytest.mark.parametrize("factor", [2, 3])
@pytest.mark.parametrize("summand", [-1, 0, 1, 2])
@pytest.mark.parametrize("multiple", [1, 2, 3])
def test_quotients_are_what_remainders_leave(factor: int, summand: int, multiple: int) -> None:
    """What is said of `s + summand >= multiple * ((s + 1) // factor)` holds for every size."""
    size = ShapeFacts().size(5)
    relation = at_least(size + summand, (size + 1) // factor * multiple)
    (symbol,) = size.free()
    found = {n + summand >= (n + 1) // factor * multiple for n in range(symbol.lower or 0, 200)}
    if multiple <= factor:  # else the sides cross
        assert Given().decide(relation) is (found.pop() if len(found) == 1 else None)
    else:
        assert Given().decide(relation) in (None, *(found if len(found) == 1 else ()))


def test_an_equation_with_a_quotient_leaves_few_sizes() -> None:
    facts = ShapeFacts()
    size = facts.size(2)
    facts.assume(equal(size, size // 2 + 1))
    assert facts.resolve(size) == 2
    other = facts.size(4)
    facts.assume(equal(other, other // 3 * 2 + 2))
    assert facts.resolve(other).bounds() == (2, 6)
    even = facts.size(8)
    facts.assume(equal(even, even // 2 * 2))
    assert facts.resolve(even).upper is None


def test_a_condition_is_a_number_in_arithmetic() -> None:
    facts = ShapeFacts()
    size = facts.size(5)
    true = ConditionNode(facts, at_least(size, 3))
    assert IntegerNode(facts, size).add(true).index == facts.resolve(size + 1)
    assert IntegerNode(facts, size).mul(true.wrap_bool(False)).index == integer(0)
    assert RealNode(facts, 2.5).add(true).value() == 3.5


def test_expressions_beyond_64_bits_are_taken_as_they_are() -> None:
    facts = ShapeFacts()
    node = IntegerNode(facts, facts.size(5))
    large = node.mul(node.wrap_int(2**61)).mul(node.wrap_int(2**61))
    assert large.index == integer(5 * 2**122)
    assert facts.resolve(node.index) == 5
