"""Sizes that depend on data, and operators that raise for some of them: so does compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
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


ASKED: dict[str, Callable[[Tensor], Any]] = {
    "median along": lambda x: x.median(0),
    "mode": lambda x: x.mode(0),
    "the second least": lambda x: x.kthvalue(2),
    "largest norm": lambda x: torch.linalg.vector_norm(x, torch.inf),
    "largest norm along": lambda x: torch.linalg.vector_norm(x[:, None], torch.inf, 0),
    "repeated edge": lambda x: F.pad(x[None], (2, 2), mode="replicate"),
    "reflected": lambda x: F.pad(x[None], (2, 2), mode="reflect"),
    "strided": lambda x: x.as_strided((2,), (1,), 1),
    "pooled": lambda x: F.max_pool2d(x[None, None], (1, 2)),
    "mean of windows": lambda x: F.avg_pool1d(x[None], 2),
    "pooled to two": lambda x: F.adaptive_avg_pool1d(x[None], 2),
    "pooled in volumes": lambda x: F.max_pool3d(x[None, None, None], (1, 1, 2)),
    "nearest": lambda x: F.interpolate(x[None, None], 4),
    "linear": lambda x: F.interpolate(x[None, None], 4, mode="linear"),
    "columns": lambda x: F.unfold(x[None, None, None], (1, 2)),
    "sampled": lambda x: F.grid_sample(
        x[None, None, None], torch.zeros(1, 1, 1, 2), align_corners=True
    ),
    "one less": lambda x: torch.zeros(x.shape[0] - 1),
    "identity": lambda x: torch.eye(x.shape[0] - 1),
    "steps": lambda x: torch.arange(0, 3, x.shape[0]),
}
"""Calls that eager refuses for some sizes though no rule of geometry says so."""


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


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("name", ASKED)
def test_raises_what_eager_is_asked_for(name: str, is_read: bool) -> None:
    """No kernel sees such sizes: one that looks for the nearest place of an empty row finds none.
    Results that nobody reads are not computed, and the exception is raised all the same.
    """

    def program(x: Tensor) -> Any:
        result = ASKED[name](x[x > 0])
        return result if is_read else x + 1

    compiled = fusewright.compile(program)
    for count in (4, 0, 1, 2, 3):
        x = torch.arange(1.0, 6.0) * torch.arange(5).lt(count)
        assert outcome(compiled, x) == outcome(program, x)
    assert len(fusewright.compilations(compiled)) == 1


def test_sizes_of_two_masks_are_asked_for_separately() -> None:
    def program(x: Tensor) -> Tensor:
        a, b = x[x > 0], x[x < 0]
        F.interpolate(torch.outer(a, b)[None, None], (4, 4))
        return x + 1

    compiled = fusewright.compile(program, fullgraph=True)
    for above in range(3):
        for below in range(3):
            x = torch.tensor([1.0] * above + [-1.0] * below + [0.0] * (4 - above - below))
            assert outcome(compiled, x) == outcome(program, x)


def test_sizes_that_do_not_go_together_are_not_asked_for() -> None:
    """Where one size is tried, another that depends on it would be negative, or not exist."""

    def program(x: Tensor, counts: Tensor) -> Tensor:
        chosen, count = x[x > 0], counts.sum().item()
        torch._check(count >= 0)
        torch._check(count < chosen.shape[0])
        rest = chosen.narrow(0, count, chosen.shape[0] - count)
        return rest.cumsum(0) + rest.amax() + torch.zeros(12 // chosen.shape[0]).sum()

    options = {"capture_scalar_outputs": True}
    compiled = fusewright.compile(program, fullgraph=True, options=options)
    for length in (5, 3, 2, 1):
        x = torch.arange(1.0, 6.0) * torch.arange(5).lt(length)
        for count in range(length):
            counts = torch.tensor([count, 0])
            torch.testing.assert_close(compiled(x, counts), program(x, counts))


def test_nothing_warns_of_sizes_that_are_only_tried(
    recwarn: pytest.WarningsRecorder,
) -> None:
    def program(x: Tensor) -> Tensor:
        return x[x > 0].std()

    x = torch.tensor([1.0, 2.0, 4.0])
    torch.testing.assert_close(fusewright.compile(program)(x), program(x))
    assert not recwarn.list


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
