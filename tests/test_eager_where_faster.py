"""Calls whose compiled code takes longer than the program as it is written run as that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fusewright

BREAKS = 30
X = torch.randn(3)


def broken(x: torch.Tensor) -> torch.Tensor:
    """Compiled, this is a graph of one operator, again and again."""
    for _ in range(BREAKS):
        x = x * 0.9
        fusewright.graph_break()
    return x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return broken(x * self.weight)


@pytest.fixture(autouse=True)
def not_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_STRICT", "0")


def called(function: Callable[..., Any], times: int = 200) -> Any:
    explained = fusewright.explain(function)
    compiled = explained._target
    for _ in range(times):
        assert torch.equal(compiled(X), broken(X))
    return explained.so_far


def test_a_program_of_many_breaks_runs_eagerly() -> None:
    found = called(broken)
    (times,) = found.call_times
    assert times.runs_as_written and times.written < times.compiled
    assert not times.whole_rounds
    assert "eager is faster, and runs" in str(found)


def test_state_changes_once_a_call_and_gradients_count() -> None:
    net = Net()
    compiled = fusewright.compile(net)
    for number in range(1, 200):
        net.zero_grad()
        compiled(X).sum().backward()
        assert net.calls == number
        torch.testing.assert_close(net.weight.grad, X * 0.9**BREAKS)
    (times,) = fusewright.explain(compiled).history.call_times
    assert times.whole_rounds and times.runs_as_written


def test_both_forwards_of_a_checkpoint_run_alike() -> None:
    """What a compiled call saves for backward is not what the program saves as it is written."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 3))
    compiled = fusewright.compile(net)
    for _ in range(60):
        x = X.clone().requires_grad_()
        checkpoint(compiled, x, use_reentrant=False).sum().backward()


@pytest.mark.parametrize(
    "keywords",
    [
        {"options": {"eager_where_faster": False}},
        {"options": {"strict": False}, "backend": "eager"},
    ],
)
def test_nothing_is_tried_where_the_user_asks_for_compiled_code(keywords: Any) -> None:
    compiled = fusewright.compile(broken, **keywords)
    for _ in range(60):
        compiled(X)
    assert fusewright.explain(compiled).history.call_times == ()


def test_nothing_is_tried_under_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_STRICT", "1")

    def whole(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = fusewright.compile(whole)
    for _ in range(60):
        compiled(X)
    assert fusewright.explain(compiled).history.call_times == ()


def test_random_numbers_are_drawn_in_eagers_order() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return broken(x) + torch.rand(3)

    compiled = fusewright.compile(noisy)
    torch.manual_seed(0)
    found = [compiled(X) for _ in range(150)]
    torch.manual_seed(0)
    torch.testing.assert_close(found, [noisy(X) for _ in range(150)])
