"""Sizes that depend on data, and operators that raise for some of them: so does compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright


def writes_the_first(x: Tensor) -> Tensor:
    x[0] = 7
    return x


def writes_the_last(x: Tensor) -> Tensor:
    x[-1] = 7
    return x


CALLS: dict[str, Callable[[Tensor], Any]] = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max along": lambda x: x.max(0),
    "amax": lambda x: x.amax(),
    "amin along": lambda x: x.amin(0),
    "argmax": lambda x: x.argmax(),
    "argmin along": lambda x: x.argmin(0),
    "aminmax": lambda x: torch.aminmax(x),
    "aminmax along": lambda x: torch.aminmax(x, dim=0),
    "of rows": lambda x: x[:, None].expand(-1, 3).amax(1),
    "view": lambda x: x.view(2, -1),
    "view of two": lambda x: x.view(2),
    "reshape": lambda x: x.reshape(-1, 3).sum(0),
    "reshape by halves": lambda x: x.reshape(x.shape[0] // 2, 2),
    "unflatten": lambda x: x.unflatten(0, (2, -1)),
    "unfold": lambda x: x.unfold(0, 2, 1),
    "the third": lambda x: x[2] + 1,
    "the third from the end": lambda x: x.select(0, -3),
    "written first": writes_the_first,
    "written last": writes_the_last,
}


def outcome(function: Callable[[Tensor], Any], x: Tensor) -> str:
    """The result as text, or the type of the exception and what it says."""
    try:
        return str(function(x))
    except (RuntimeError, IndexError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", CALLS)
def test_raises_where_eager_does(name: str, backend: str) -> None:
    def program(x: Tensor) -> Any:
        return CALLS[name](x[x > 0])

    compiled = fusewright.compile(program, backend=backend)
    for count in (2, 0, 1, 3, 4):
        x = torch.arange(1.0, 6.0) * torch.arange(5).lt(count)
        assert outcome(compiled, x) == outcome(program, x)
    assert len(fusewright.compilations(compiled)) == 1


PROMISES: dict[str, Callable[[int], bool]] = {
    "a multiple": lambda count: count % 2 == 0,
    "twice its half": lambda count: count // 2 * 2 == count,
    "a multiple of a square": lambda count: count * count % 3 == 0,
    "another remainder": lambda count: count % 3 == 1,
    "bounds": lambda count: count * 2 + 1 >= 5,
}


@pytest.mark.parametrize("name", PROMISES)
def test_each_promise_is_checked(name: str) -> None:
    def program(x: Tensor) -> Tensor:
        chosen = x[x > 0]
        torch._check(PROMISES[name](chosen.shape[0]))
        return chosen * 2

    compiled = fusewright.compile(program, fullgraph=True)
    for count in range(5):
        x = torch.arange(1.0, 6.0) * torch.arange(5).lt(count)
        assert outcome(compiled, x) == outcome(program, x)
