"""Reshapes of tensors whose sizes depend on data: views for some data, and copies for other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright

RESHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape to two rows": lambda places: places.reshape(2, -1),
    "reshape to a row": lambda places: places.reshape(-1),
    "reshape by a function": lambda places: torch.reshape(places, (-1,)),
    "reshape_as": lambda places: places.reshape_as(places.t()),
    "flatten": lambda places: places.flatten(),
    "ravel": lambda places: torch.ravel(places),
    "contiguous": lambda places: places.contiguous(),
    "to": lambda places: places.to(memory_format=torch.contiguous_format),
    "the first place": lambda places: places[:1].reshape(-1),
    "all but the first place": lambda places: places[1:].reshape(-1),
    "transposed": lambda places: places.t().reshape(2, 1, -1),
}


def inputs() -> list[Tensor]:
    """Rows with none to four numbers that are not zero."""
    return [torch.arange(5).lt(count).float()[None] for count in range(5)]


@pytest.mark.parametrize("name", RESHAPES)
def test_writes_are_seen_where_eager_has_a_view(name: str) -> None:
    """`nonzero` gives columns that lie one behind the other."""
    reshape = RESHAPES[name]

    def writes_to_it(x: Tensor) -> tuple[Tensor, Tensor]:
        places = x.nonzero()
        reshaped = reshape(places)
        reshaped.add_(1)
        return places, reshaped

    def writes_to_the_whole(x: Tensor) -> Tensor:
        places = x.nonzero()
        reshaped = reshape(places)
        places.mul_(2)
        return reshaped + 1

    for function in (writes_to_it, writes_to_the_whole):
        compiled = fusewright.compile(function)
        for x in inputs():
            assert_same(compiled(x), function(x))


@pytest.mark.parametrize("name", RESHAPES)
def test_results_share_memory_where_eager_s_do(name: str) -> None:
    reshape = RESHAPES[name]

    def returns_both(x: Tensor) -> tuple[Tensor, Tensor]:
        places = x.nonzero()
        return places, reshape(places)

    compiled = fusewright.compile(returns_both)
    for x in inputs():
        results = compiled(x), returns_both(x)
        for places, _ in results:
            places.mul_(3)
        assert_same(*results)


def test_a_part_of_an_argument_may_be_all_of_it() -> None:
    def columns(x: Tensor, count: Tensor) -> Tensor:
        return x[:, : count.item()].reshape(-1)

    for capture in (False, True):
        options = {"capture_data_dependent_sizes": capture}
        compiled = fusewright.compile(columns, options=options)
        for count in (2, 5):
            arguments = torch.ones(3, 5), torch.ones(3, 5)
            for function, x in zip((compiled, columns), arguments, strict=True):
                function(x, torch.tensor(count)).zero_()
            assert_same(*arguments)


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", RESHAPES)
def test_what_cannot_be_noticed_stays_in_the_graph(name: str, backend: str) -> None:
    reshape = RESHAPES[name]

    def only_reads(x: Tensor) -> Tensor:
        return reshape(x.nonzero()) * 2

    compiled = fusewright.compile(only_reads, backend=backend, fullgraph=True)
    for x in inputs():
        assert_same(compiled(x), only_reads(x))
    assert len(fusewright.compilations(compiled)) == 1


def test_the_break_says_why() -> None:
    def writes_to_it(x: Tensor) -> tuple[Tensor, Tensor]:
        places = x.nonzero()
        return places, places.reshape(-1).add_(1)

    (reason,) = fusewright.explain(writes_to_it, backend="eager")(inputs()[2]).breaks
    assert reason.reason == "fake-execution"
    assert "a view or a copy" in str(reason)


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
