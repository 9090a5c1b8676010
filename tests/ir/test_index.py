"""Index expressions against brute force: what is simplified or bounded holds everywhere."""

from __future__ import annotations

import itertools

import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusewright.ir.compounds import floor_divide, maximum, minimum
from fusewright.ir.grammar import read_index
from fusewright.ir.index import (
    Index,
    LoopSymbol,
    RealSymbol,
    SizeSymbol,
    Symbol,
    contiguous_strides,
    integer,
    known_multiple,
)
from fusewright.ir.lexer import Cursor, split_lines
from fusewright.ir.sizes import size_symbol
from tests.ir.index_expressions import EXPRESSIONS, FREE, LOOPS, MANY, POINTS, Pair


@MANY
@given(EXPRESSIONS)
def test_simplification_keeps_the_value(pair: Pair) -> None:
    for point in POINTS:
        assert pair.index.evaluate(point) == pair.compute(point), (pair.index, point)


STEPS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24])


@MANY
@given(STEPS, STEPS, STEPS, st.integers(-9, 30), STEPS, STEPS)
def test_addresses_divide_exactly(
    a: int, b: int, c: int, offset: int, divisor: int, then: int
) -> None:
    """Flattened addresses, taken apart as reshapes do: the terms that can and cannot carry over."""
    first, second, third = (symbol.index for symbol in LOOPS[:3])
    address = first * a + second * b + third * c + offset
    apart = ((address // divisor) % then, (address % divisor) // then, address // divisor // then)
    for point in POINTS:
        value = address.evaluate(point)
        found = tuple(index.evaluate(point) for index in apart)
        wanted = ((value // divisor) % then, (value % divisor) // then, value // divisor // then)
        assert found == wanted, (address, divisor, then)


@MANY
@given(EXPRESSIONS)
def test_bounds_hold(pair: Pair) -> None:
    low, high = pair.index.bounds()
    for point in POINTS:
        value = pair.compute(point)
        assert low is None or low <= value, (pair.index, low, point)
        assert high is None or value <= high, (pair.index, high, point)


@MANY
@given(EXPRESSIONS)
def test_divisor_divides(pair: Pair) -> None:
    divisor = pair.index.divisor
    for point in POINTS:
        value = pair.compute(point)
        assert value % divisor == 0 if divisor else value == 0, (pair.index, divisor, point)
    assert known_multiple(pair.index, 4) == (divisor % 4 == 0)


@MANY
@given(EXPRESSIONS, st.sampled_from(LOOPS))
def test_stride_is_the_step(pair: Pair, symbol: Symbol) -> None:
    step = pair.index.stride(symbol)
    assume(step is not None)
    assert step is not None
    assert symbol not in step.free()
    for point in POINTS:
        after = {**point, symbol.name: point[symbol.name] + 1}
        if after[symbol.name] < symbol.extent.evaluate(point):
            assert pair.compute(after) - pair.compute(point) == step.evaluate(point)


@MANY
@given(EXPRESSIONS)
def test_substitution_is_evaluation(pair: Pair) -> None:
    outer = LoopSymbol("j0", 12)
    replacements = {LOOPS[0]: outer.index // 4, LOOPS[1]: outer.index % 4}
    replaced = pair.index.substitute(replacements)
    assert not replaced.free() & replacements.keys()
    for point, j0 in zip(POINTS, itertools.cycle(range(12)), strict=False):
        values = {**point, "j0": j0}
        before = {**point, "i0": j0 // 4, "i1": j0 % 4}
        assert replaced.evaluate(values) == pair.compute(before), (pair.index, replaced)


@MANY
@given(EXPRESSIONS)
def test_text_reads_back_to_an_equal_expression(pair: Pair) -> None:
    text = str(pair.index)
    symbols = {symbol.name: symbol.index for symbol in FREE}
    cursor = Cursor(text, split_lines(text)[0].tokens)
    again = read_index(cursor, symbols)
    cursor.finish()
    assert again == pair.index
    assert hash(again) == hash(pair.index)


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS)
def test_equal_expressions_are_equal_in_sympy(left: Pair, right: Pair) -> None:
    """Sums and products are canonical: what sympy expands to zero, we subtract to zero."""
    for pair in (left, right):
        assume(not any(word in str(pair.index) for word in ("//", "%", "min", "max")))
    names = {symbol.name: sympy.Symbol(symbol.name, integer=True) for symbol in FREE}

    def translated(index: Index) -> sympy.Expr:
        return sympy.sympify(str(index), locals=names)

    product = left.index * right.index + left.index
    expected = sympy.expand(translated(left.index) * translated(right.index)) + translated(
        left.index
    )
    assert sympy.expand(translated(product) - expected) == 0
    assert (product - left.index * (right.index + 1)) == 0


@pytest.mark.parametrize("symbol", [*FREE, RealSymbol("f0")], ids=str)
def test_a_symbol_is_renamed_within_its_kind(symbol: Symbol) -> None:
    other = symbol.renamed("other")
    assert type(other) is type(symbol) and other != symbol and other.name == "other"
    assert other.renamed(symbol.name) == symbol and hash(other.renamed(symbol.name)) == hash(symbol)


def test_symbols_of_one_name_and_different_kinds_are_different() -> None:
    symbols = [SizeSymbol("n"), SizeSymbol("n", 0), RealSymbol("n"), LoopSymbol("n", 4)]
    assert len({symbol.index for symbol in symbols}) == 4


P, J, R = LoopSymbol("p", 8).index, LoopSymbol("j", 4).index, LoopSymbol("r", 768).index
N, M = size_symbol("n").index, size_symbol("m").index
ROW, COLUMN = LoopSymbol("row", N).index, LoopSymbol("column", M).index
LINE = LoopSymbol("line", N * M).index


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ((768 * P + R) // 768, P),
        ((768 * P + R) % 768, R),
        ((768 * P + R) // 1536, P // 2),
        ((768 * P + R) % 1536, 768 * (P % 2) + R),
        (4 * (P // 4) + P % 4, P),
        (J // 4, integer(0)),
        (J % 4, J),
        ((P // 2) // 2, P // 4),
        ((P % 4) // 2, (P // 2) % 2),
        ((6 * P + 3) // 3, 2 * P + 1),
        ((N * P + ROW) // N, P),
        ((N * P + ROW) % N, ROW),
        ((N * M * P + M * ROW + COLUMN) // (N * M), P),
        ((N * M * P + M * ROW + COLUMN) // M, N * P + ROW),
        ((N * M * P + M * ROW + COLUMN) % M, COLUMN),
        ((2 * N + 2) // (N + 1), integer(2)),
        (N * (ROW // N) + ROW % N, ROW),
        ((N + 1) * (P // (N + 1)) + P % (N + 1), P),
        (3 * ((N // 2 + 1) * (P // (N // 2 + 1)) + P % (N // 2 + 1)), 3 * P),
        ((P // N) // M, P // (N * M)),
        ((LINE // M) // N, integer(0)),
        ((P % (N * M)) // M, (P // M) % N),
        ((P % (N * M)) % M, P % M),
        ((N * P + N) // (N * M), (P + 1) // M),
        ((N * P + ROW) // (N * M), P // M),
        ((N * P + ROW) % (N * M), N * (P % M) + ROW),
        ((768 * LINE + R) // (768 * M), LINE // M),
        ((768 * LINE + R) % (768 * M), 768 * (LINE % M) + R),
        ((LINE // M) % N, LINE // M),
        (M * ((LINE // M) % N) + M * N * (LINE // (M * N)) + LINE % M, LINE),
        (minimum(N, N + 1), N),
        (maximum(P, 8), integer(8)),
        (minimum(J, 3), J),
    ],
)
def test_known_simplifications(made: Index, expected: Index) -> None:
    assert made == expected


def test_contiguous_strides_of_nothing_count_it_as_one() -> None:
    assert contiguous_strides((2, 0, 3)) == (3, 3, 1)


def test_a_symbolic_size_is_no_number() -> None:
    with pytest.raises(TypeError, match="symbolic"):
        int(N)


def test_divisions_inside_of_divisions_take_no_exponential_time() -> None:
    """A size that is padded again and again, as by nested windows."""
    before = floor_divide.cache_info().misses
    size = SizeSymbol("padded", 2).index
    for window in (4, 6, 10, 14, 22, 26):
        size = size + (-size) % window
        place = LoopSymbol("place", size).index
        assert (place // window) * window + place % window == place
    assert floor_divide.cache_info().misses - before < 40
