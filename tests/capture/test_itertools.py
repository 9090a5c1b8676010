"""Iterators of itertools under capture are of the classes that Python's are, take no item earlier,
end when those end, and go on behind an exception.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
import torch

from fusewright import api
from tests.programs.iterators import ITERATORS, OF_ANY_ITEMS, X, outcome


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


ARGUMENTS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "nothing": ((), ()),
    "numbers": ((1, 3, 4, 1, 5), (1, 0, 2)),
    "what raises": ((1, 2, 3, 2, 1, 4), (1, 0, 2, 1)),
    "what ends": ((1, ValueError("first"), 3, 4), (2, 1, ValueError("second"), 1)),
}


@pytest.mark.parametrize("given", ARGUMENTS)
@pytest.mark.parametrize("name", OF_ANY_ITEMS)
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
