"""A captured graph cut where buckets of gradients are full, by `{"split_for_ddp": "graph"}`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fusewright
from fusewright import graph_pieces, pipeline
from fusewright.capture import trace


@pytest.fixture(autouse=True)
def a_bucket_for_each_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "active_bucket_limits", lambda: (1,))


class Block(nn.Module):
    """Writes to running statistics and in place, and reads its input twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.norm(self.convolution(x))) + self.last(x)


def trained(model: nn.Module, sizes: list[int]) -> tuple[list[Any], ...]:
    """Losses of some steps; parameters and buffers after them."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for size in sizes:
        x = torch.randn(size, 4, 6, 6, generator=torch.Generator().manual_seed(size))
        loss = model(x).square().mean()
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
    return losses, [p.detach() for p in model.parameters()], list(model.buffers())


@pytest.mark.parametrize("sizes", [[4, 4, 4], [4, 3, 5, 7]])
def test_training_is_as_in_eager(sizes: list[int]) -> None:
    model = nn.Sequential(Block(), Block(), Block())
    ours = fusewright.compile(
        copy.deepcopy(model), options={"split_for_ddp": "graph", "strict": True}
    )
    torch.testing.assert_close(trained(ours, sizes), trained(model, sizes))
    compilation = fusewright.compilations(ours)[-1]
    assert len(compilation.record.subprograms) >= 5


def test_a_size_that_a_branch_makes_a_constant() -> None:
    """It is a symbol in the graph that stands for one number; nothing else of the graph varies."""
    first, second = nn.Linear(8, 32), nn.Linear(32, 4)

    def program(x: Tensor) -> Tensor:
        result = second(torch.tanh(first(x)))
        return result if x.shape[0] == 3 else result * 2

    options = {"split_for_ddp": "graph", "strict": True}
    compiled = fusewright.compile(program, options=options)
    for size in (4, 3, 5, 3):
        x = torch.randn(size, 8)
        torch.testing.assert_close(compiled(x), program(x))
        compiled(x).sum().backward()


def count(function: Callable[..., Any], *args: Any, limits: tuple[int, ...] = (1,)) -> list[int]:
    """How many calls each piece of a function's graph has."""
    parts = graph_pieces.pieces(trace(function, *args), args, limits)
    return [sum(node.op.startswith("call") for node in part.module.graph.nodes) for part in parts]


def weight() -> Tensor:
    return torch.randn(4, 4).requires_grad_()


def test_a_piece_begins_where_a_bucket_is_full() -> None:
    def three(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return F.linear(F.linear(F.linear(x, a), b), c)

    args = (torch.randn(2, 4), weight(), weight(), weight())
    assert count(three, *args) == [1, 1, 1]
    assert count(three, *args, limits=(64, 128)) == [2, 1]
    assert count(three, *args, limits=(1000,)) == []


def test_the_fewest_bytes_cross() -> None:
    def program(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        hidden = F.linear(x, a)
        narrow = hidden.cos().sum(0)
        return torch.cat([narrow, narrow, narrow]).sin().view(3, 4) @ b

    assert count(program, torch.randn(9, 4), weight(), weight()) == [3, 4]


def test_what_is_written_to_later_does_not_cross() -> None:
    def program(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        hidden = F.linear(x, a)
        result = F.linear(x, b)
        hidden += 1
        return hidden * result

    assert count(program, torch.randn(2, 4), weight(), weight()) == []


def test_no_piece_begins_in_another_mode() -> None:
    def program(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.linear(F.linear(x, a), b)

    assert count(program, torch.randn(2, 4), weight(), weight()) == []
