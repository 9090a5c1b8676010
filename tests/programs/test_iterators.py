"""Iterators of every class: left behind a graph break, left to the caller, exhausted, in the middle
of a loop, and given from outside at any position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from fusewright import api
from fusewright.capture.directives import graph_break
from tests.capture.agreement import assert_same
from tests.programs.iterators import ITEMS, ITERATORS, MORE, Maker, X, outcome

Function = Callable[..., Any]

each_iterator = pytest.mark.parametrize("make", ITERATORS.values(), ids=ITERATORS)


def new(make: Maker, moved: int = 0) -> Any:
    """An iterator, of which some items are taken already."""
    iterator = make([*ITEMS], [*MORE])
    for _ in range(moved):
        outcome(iterator)
    return iterator


def rest(iterator: Any) -> list[Any]:
    return [outcome(iterator) for _ in range(12)]


MADE_OF_TUPLES = (itertools.product, itertools.combinations, type(iter(set())))
"""Classes whose iterators go on as ones over the items that are left, where they are made again."""


def length(make: Maker) -> int:
    """How many items there are; 0 where one raises."""
    try:
        return len(list(new(make)))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return 0


@each_iterator
@pytest.mark.parametrize("taken", [0, 2, 5])
def test_it_goes_on_behind_a_break(make: Maker, taken: int) -> None:
    def inside(x: Any, items: Any, more: Any) -> Any:
        iterator = make(items, more)
        before = [outcome(iterator) for _ in range(taken)]
        graph_break()
        return before, [outcome(iterator) for _ in range(12)], x + 1

    def outside(x: Any, items: Any, more: Any) -> Any:
        iterator = make(items, more)
        before = [outcome(iterator) for _ in range(taken)]
        graph_break()
        return before, outcome(iterator), iterator, x + 1

    compiled = api.compile(inside, backend="eager")
    for _ in range(2):
        assert_same(compiled(X, [*ITEMS], [*MORE]), inside(X, [*ITEMS], [*MORE]))

    *result, mine, _ = api.compile(outside, backend="eager")(X, [*ITEMS], [*MORE])
    *expected, theirs, _ = outside(X, [*ITEMS], [*MORE])
    assert_same(result, expected)
    left = rest(mine)
    is_exhausted = left == [("StopIteration", ())] * 12
    assert type(mine) is type(theirs) or is_exhausted or type(theirs) in MADE_OF_TUPLES
    assert_same(left, rest(theirs))


@each_iterator
def test_it_stays_exhausted(make: Maker) -> None:
    def function(x: Any, items: Any, more: Any) -> Any:
        iterator = make(items, more)
        before = [outcome(iterator) for _ in range(14)]
        graph_break()
        items.append(9)
        return x * 2, before, [outcome(iterator) for _ in range(2)]

    compiled = api.compile(function, backend="eager")
    for _ in range(2):
        assert_same(compiled(X, [*ITEMS], [*MORE]), function(X, [*ITEMS], [*MORE]))


RUN_AGAIN = frozenset(
    """
    generator|nested generators|generator expression|generator with a tensor|delegating|protocol
    enumerate of a generator|reversed protocol|reversed of its own|sentinel|chain of iterators|cycle
    cycle of one round|accumulate|accumulate from|starmap|dropwhile|compress|pairwise|zip_longest
    enumerate of map|islice of map|deque|bounded deque|reversed deque|enumerate of a deque
    """.replace("\n", "|")
    .replace("    ", "")
    .split("|")
)
"""Iterators that run Python for each item, or look at their container: their loops break again."""


@pytest.mark.parametrize("name", ITERATORS)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_the_rest_of_a_loop_is_one_graph(name: str, place: int) -> None:
    make = ITERATORS[name]

    def loop(x: Any, items: Any, more: Any) -> Any:
        number, item = 0, None
        try:
            for item in make(items, more):  # noqa: B007
                x = x * 2 + number
                if number == place:
                    graph_break()
                number += 1
        except (ZeroDivisionError, KeyError, TypeError, ValueError) as error:
            return x, str(error)
        return x, item

    graphs: list[Any] = []

    def backend(graph_module: Any, inputs: Any) -> Any:
        graphs.append(graph_module)
        return graph_module.forward

    compiled = api.compile(loop, backend=backend)
    for _ in range(3):
        assert_same(compiled(X, [*ITEMS], [*MORE]), loop(X, [*ITEMS], [*MORE]))
    if name not in RUN_AGAIN and (count := length(make)):
        assert len(graphs) == (2 if place < count - 1 else 1)


def takes(number: int) -> Function:
    """A function that takes some items of an iterator that it is given."""

    def take(x: Any, iterator: Any) -> Any:
        return x + 1, [outcome(iterator) for _ in range(number)]

    return take


@pytest.mark.filterwarnings("ignore:.*recompile_limit")
@each_iterator
@pytest.mark.parametrize("number", [1, 3, 9])
def test_one_that_exists_is_left_where_eager_leaves_it(make: Maker, number: int) -> None:
    function = takes(number)
    compiled = api.compile(function, backend="eager")
    for moved in (0, 0, 1, 2):
        mine, theirs = new(make, moved), new(make, moved)
        assert_same(compiled(X, mine), function(X, theirs))
        assert_same(compiled(X, mine), function(X, theirs))
        assert_same(rest(mine), rest(theirs))


def takes_one(x: Any, iterator: Any) -> Any:
    return x + 1, outcome(iterator)


def takes_all(x: Any, iterator: Any) -> Any:
    return x + 1, [outcome(iterator) for _ in range(12)]


def counts_some(x: Any, iterator: Any) -> Any:
    """Items up to the third, with numbers."""
    taken = []
    try:
        for number, item in enumerate(iterator):
            taken.append((item, x + number))
            if number == 2:
                break
    except (ZeroDivisionError, KeyError, TypeError, ValueError) as error:
        taken.append(str(error))
    return taken


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("read", [takes_one, takes_all, counts_some], ids=lambda f: f.__name__)
def test_what_was_captured_for_one_serves_no_other(read: Function, order: int) -> None:
    compiled = api.compile(read, backend="eager", recompile_limit=1000)
    kinds = [(name, moved) for name in ITERATORS for moved in (0, 2, 9)][::order]
    for name, moved in kinds + kinds:
        mine, theirs = new(ITERATORS[name], moved), new(ITERATORS[name], moved)
        expected = read(X, theirs), rest(theirs)
        assert_same((compiled(X, mine), rest(mine)), expected, name)
