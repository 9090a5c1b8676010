"""Random index expressions, each with how Python computes it, and values of their symbols."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st

from fusewright.ir.compounds import maximum, minimum
from fusewright.ir.index import Index, LoopSymbol, SizeSymbol, integer
from fusewright.ir.sizes import size_symbol

S0 = size_symbol("s0", 2, 9)
S1 = size_symbol("s1", 2, 16, multiple=2)
LOOPS = (
    LoopSymbol("i0", 3),
    LoopSymbol("i1", 4),
    LoopSymbol("r0", 6),
    LoopSymbol("r1", S0),
    LoopSymbol("k", 1),
)
LOADED = SizeSymbol("k0", -2, 5)
FREE = (*LOOPS, LOADED, S0, S1)

Point = dict[str, int]


@dataclass(frozen=True)
class Pair:
    """An expression, and how Python computes it."""

    index: Index
    compute: Callable[[Point], int]


def points(seed: int = 0, count: int = 60) -> list[Point]:
    """Values of all symbols that respect their ranges; the corners of the ranges among them."""
    draw = random.Random(seed)
    found: list[Point] = []
    for corner in range(count):
        pick = (min, max, lambda values: draw.choice(list(values)))[min(corner % 5, 2)]
        point = {"s0": pick(range(2, 10)), "s1": pick(range(2, 17, 2)), "k0": pick(range(-2, 6))}
        extents = {"i0": 3, "i1": 4, "r0": 6, "r1": point["s0"], "k": 1}
        for name, extent in extents.items():
            point[name] = (pick if corner % 3 else draw.choice)(range(extent))
        found.append(point)
    return found


POINTS = points()


def leaf() -> st.SearchStrategy[Pair]:
    symbols = st.sampled_from(FREE).map(
        lambda symbol: Pair(symbol.index, lambda point: point[symbol.name])
    )
    numbers = st.integers(-12, 40).map(lambda value: Pair(integer(value), lambda point: value))
    return st.one_of(symbols, symbols, numbers)


def combined(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    divisors = st.sampled_from(
        [1, 2, 3, 4, 6, 8, 12, S0.index, S1.index, S0.index * 4, S0.index * S1.index, S0.index + 1]
    )

    def add(pair: tuple[Pair, Pair]) -> Pair:
        left, right = pair
        return Pair(left.index + right.index, lambda p: left.compute(p) + right.compute(p))

    def subtract(pair: tuple[Pair, Pair]) -> Pair:
        left, right = pair
        return Pair(left.index - right.index, lambda p: left.compute(p) - right.compute(p))

    def multiply(pair: tuple[Pair, Pair]) -> Pair:
        left, right = pair
        return Pair(left.index * right.index, lambda p: left.compute(p) * right.compute(p))

    def scale(given: tuple[Pair, int]) -> Pair:
        left, by = given
        return Pair(left.index * by, lambda p: left.compute(p) * by)

    def divide(given: tuple[Pair, Index | int]) -> Pair:
        left, by = given
        return Pair(left.index // by, lambda p: left.compute(p) // number(by, p))

    def modulo(given: tuple[Pair, Index | int]) -> Pair:
        left, by = given
        return Pair(left.index % by, lambda p: left.compute(p) % number(by, p))

    def least(pair: tuple[Pair, Pair]) -> Pair:
        left, right = pair
        return Pair(
            minimum(left.index, right.index), lambda p: min(left.compute(p), right.compute(p))
        )

    def greatest(pair: tuple[Pair, Pair]) -> Pair:
        left, right = pair
        return Pair(
            maximum(left.index, right.index), lambda p: max(left.compute(p), right.compute(p))
        )

    two = st.tuples(inner, inner)
    by = st.tuples(inner, divisors)
    return st.one_of(
        two.map(add),
        two.map(add),
        two.map(subtract),
        two.map(multiply),
        st.tuples(inner, st.sampled_from([-4, -1, 2, 3, 4, 6, 8, 12, 24])).map(scale),
        by.map(divide),
        by.map(modulo),
        two.map(least),
        two.map(greatest),
    )


def number(value: Index | int, point: Point) -> int:
    return value.evaluate(point) if isinstance(value, Index) else value


EXPRESSIONS = st.recursive(leaf(), combined, max_leaves=8)
MANY = settings(max_examples=100, deadline=None)
