"""Operators asked for a sparse gradient run as they are written, between compiled graphs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusewright

pytestmark = pytest.mark.filterwarnings("error:fusewright")


class Words(nn.Module):
    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table = table
        self.rest = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))

    def forward(self, words: Tensor) -> Tensor:
        return self.rest(self.table(words).tanh() * 2)


class TwoSides(Words):
    def forward(self, words: Tensor) -> Tensor:
        return self.rest(self.table(words) * self.table(words.flip(1)))


@pytest.mark.parametrize(
    "model",
    [
        Words(nn.Embedding(10, 4, sparse=True)),
        Words(nn.Embedding(10, 4, sparse=True, padding_idx=2)),
        Words(nn.EmbeddingBag(10, 4, sparse=True, mode="sum")),
        TwoSides(nn.Embedding(10, 4, sparse=True)),
    ],
    ids=["embedding", "padding", "bag", "twice"],
)
def test_a_table_gets_a_sparse_gradient(model: Words) -> None:
    words = torch.tensor([[1, 2, 2], [9, 0, 1]])
    expected, found = copy.deepcopy(model), copy.deepcopy(model)
    compiled = fusewright.compile(found)
    for _ in range(2):
        results = []
        for call, module in ((expected, expected), (compiled, found)):
            module.zero_grad()
            result = call(words)
            result.square().sum().backward()
            results.append(result)
        torch.testing.assert_close(*results)
        for one, other in zip(expected.parameters(), found.parameters(), strict=True):
            assert one.grad is not None and other.grad is not None
            assert one.grad.layout == other.grad.layout
            torch.testing.assert_close(other.grad.to_dense(), one.grad.to_dense())
    assert fusewright.explain(compiled).history.graphs  # the rest is compiled
    words = words.clone()
    with torch.no_grad():  # where nobody asks for gradients it is one graph
        whole = fusewright.compile(found, fullgraph=True)
        torch.testing.assert_close(whole(words), found(words))


def test_a_sparse_gradient_reaches_compiled_code() -> None:
    def program(x: Tensor, index: Tensor) -> Any:
        return torch.gather((x * 2).sin(), 1, index, sparse_grad=True) * 3

    index = torch.tensor([[0, 2], [1, 1]])
    gradients = []
    for call in (program, fusewright.compile(program)):
        x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        call(x, index).sum().backward()
        assert x.grad is not None
        gradients.append(x.grad.to_dense())
    torch.testing.assert_close(*gradients)
