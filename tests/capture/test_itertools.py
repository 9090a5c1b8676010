"""Iterators of itertools under capture are of the classes that Python's are, take no item earlier,
end when those end, and go on behind an exception and a graph break.
"""

# ruff: noqa: B905 (the shorter one ends it)

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import fusewright
from fusewright import api

X = torch.arange(4.0)


class Failing:
    """Iterates over items; one that is an exception is raised."""

    def __init__(self, *items: Any) -> None:
        self.items = iter(items)
        self.taken = 0

    def __iter__(self) -> Failing:
        return self

    def __next__(self) -> Any:
        item = next(self.items)
        self.taken += 1
        if isinstance(item, Exception):
            raise item
        return item


def smaller_than(limit: int) -> Callable[[int], bool]:
    def predicate(item: int) -> bool:
        if item == 2:
            raise KeyError(item)
        return item < limit

    return predicate


def divide(left: int, right: int) -> float:
    return left / right


ITERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "accumulate": lambda items, more: itertools.accumulate(items),
    "accumulate from": lambda items, more: itertools.accumulate(items, divide, initial=8),
    "accumulate none": lambda items, more: itertools.accumulate([None, 1], lambda a, b: None),
    "starmap": lambda items, more: itertools.starmap(divide, enumerate(items)),
    "starmap of numbers": lambda items, more: itertools.starmap(divide, items),
    "takewhile": lambda items, more: itertools.takewhile(smaller_than(3), items),
    "dropwhile": lambda items, more: itertools.dropwhile(smaller_than(3), items),
    "compress": lambda items, more: itertools.compress(items, more),
    "pairwise": lambda items, more: itertools.pairwise(items),
    "zip_longest": lambda items, more: itertools.zip_longest(items, more, "ab", fillvalue=-1),
    "zip_longest of none": lambda items, more: itertools.zip_longest(),
    "islice": lambda items, more: itertools.islice(items, 1, 4, 2),
    "islice to a place before": lambda items, more: itertools.islice(items, 3, 2),
    "map": lambda items, more: map(divide, items, more),
    "filterfalse": lambda items, more: itertools.filterfalse(smaller_than(3), items),
    "chain": lambda items, more: itertools.chain(items, more),
    "chain of the items": lambda items, more: itertools.chain.from_iterable(items),
    "zip": lambda items, more: zip(items, more),
    "zip, strictly": lambda items, more: zip(items, more, strict=True),
    "enumerate": lambda items, more: enumerate(items, 3),
    "filter": lambda items, more: filter(None, items),
    "cycle": lambda items, more: itertools.islice(itertools.cycle(more), 7),
}
ARGUMENTS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "nothing": ((), ()),
    "numbers": ((1, 3, 4, 1, 5), (1, 0, 2)),
    "what raises": ((1, 2, 3, 2, 1, 4), (1, 0, 2, 1)),
    "what ends": ((1, ValueError("first"), 3, 4), (2, 1, ValueError("second"), 1)),
}


def outcome(iterator: Iterator[Any]) -> Any:
    try:
        return next(iterator)
    except Exception as error:
        return type(error).__name__, error.args


@pytest.mark.parametrize("given", ARGUMENTS)
@pytest.mark.parametrize("name", ITERATORS)
def test_what_it_gives(name: str, given: str) -> None:
    make, (first, second) = ITERATORS[name], ARGUMENTS[given]

    def program(x: Any) -> Any:
        items, more = Failing(*first), Failing(*second)
        iterator = make(items, more)
        outcomes = []
        for _ in range(8):
            outcomes.append((outcome(iterator), items.taken, more.taken))
        return outcomes, type(iterator), x + 1

    compiled = api.compile(program, backend="eager", fullgraph=True)
    assert str(compiled(X)) == str(program(X))


@pytest.mark.parametrize("behind", range(6))
@pytest.mark.parametrize("name", ITERATORS)
def test_it_leaves_and_goes_on(name: str, behind: int) -> None:
    make = ITERATORS[name]

    def program(x: Any) -> Any:
        iterator = make(iter([1, 3, 4, 1, 5]), iter([1, 4, 2]))
        before = [outcome(iterator) for _ in range(behind)]
        fusewright.graph_break()
        inside = outcome(iterator)
        return before, inside, iterator, x + 1

    def results(function: Callable[[Any], Any]) -> Any:
        before, inside, iterator, _ = function(X)
        return before, inside, type(iterator), [outcome(iterator) for _ in range(6)]

    compiled = api.compile(program, backend="eager")
    left_type = results(program)[2]
    captured = results(compiled)
    is_exhausted = captured[3] == [("StopIteration", ())] * 6
    assert captured[:2] + captured[3:] == results(program)[:2] + results(program)[3:]
    assert captured[2] is left_type or is_exhausted


def test_arguments_that_it_does_not_take() -> None:
    for function, arguments in (
        (itertools.accumulate, ()),
        (itertools.pairwise, (1,)),
        (itertools.takewhile, (None,)),
        (itertools.compress, ([1], [1], [1])),
        (itertools.starmap, (operator.add, 3)),
    ):

        def program(x: Any, function: Any = function, arguments: Any = arguments) -> Any:
            try:
                function(*arguments)
            except TypeError as error:
                return str(error), x + 1

        compiled = api.compile(program, backend="eager", fullgraph=True)
        assert compiled(X)[0] == program(X)[0]


def test_tensors_pass_through() -> None:
    def program(x: Any) -> Any:
        sums = list(itertools.accumulate([x, x * 2, x.sin()], torch.add))
        rows = itertools.zip_longest(sums, x, fillvalue=x[0])
        return [left * right for left, right in itertools.chain(rows, itertools.pairwise(sums))]

    compiled = api.compile(program, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), program(X), rtol=0, atol=0)
