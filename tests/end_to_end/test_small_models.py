"""Small models trained through the whole compiler, captured as one graph: results, gradients and
buffers are eager's.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import fusewright
from fusewright.errors import BackendCompilerFailed
from tests.capture import small_models

WORDS = torch.tensor([[3, 7, 1, 0], [5, 2, 9, 4]])


def trains_as_eager(module: nn.Module, *inputs: Any) -> None:
    reference = copy.deepcopy(module)
    compiled = fusewright.compile(module, fullgraph=True, options={"strict": True, "verify": True})
    for _ in range(2):
        found = []
        for model in (compiled, reference):
            torch.manual_seed(3)
            outputs = tensors_of(model(*inputs))
            losses = [one.nan_to_num(neginf=0).square().sum() for one in outputs]
            torch.stack(losses).sum().backward()
            found.append(outputs)
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5, check_stride=True)
    for one, other in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [one for part in parts for one in tensors_of(part)]


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_tagger(training: bool) -> None:
    """An LSTM of two layers, with dropout between them in training."""
    torch.manual_seed(0)
    trains_as_eager(small_models.Tagger().train(training), WORDS)


def test_translator() -> None:
    """A GRU, a cell step by step, and embeddings read inside of a concatenation."""
    torch.manual_seed(0)
    trains_as_eager(small_models.Translator(), WORDS, WORDS[:, :3])


def test_hessian() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.func.hessian(lambda y: (weight @ y).tanh().prod())(x)

    inputs = torch.randn(3), torch.randn(3, 3)
    found = fusewright.compile(program, fullgraph=True, options={"strict": True})(*inputs)
    torch.testing.assert_close(found, program(*inputs))


INDICES = torch.tensor([1, 2, 3, 4, 1, 3])


@pytest.mark.parametrize(
    ("options", "inputs"),
    [
        ({"mode": "sum"}, (INDICES, torch.tensor([0, 2, 2, 5]))),  # one bag is empty
        ({"padding_idx": 3}, (INDICES, torch.tensor([0, 2, 2, 5]))),
        ({"include_last_offset": True}, (INDICES, torch.tensor([0, 2, 2, 6]))),
        ({"mode": "mean"}, (INDICES.view(2, 3),)),
        (
            {"mode": "sum", "padding_idx": -7},
            (INDICES.view(2, 3), None, torch.linspace(0, 1, 6).view(2, 3)),
        ),
        ({}, (INDICES[:0], torch.tensor([0, 0]))),
        ({"scale_grad_by_freq": True}, (INDICES, torch.tensor([0, 2, 2, 5]))),
        ({"mode": "max"}, (torch.tensor([1, 2, 1, 4, 1, 3]), torch.tensor([0, 2, 2, 3]))),
        ({"mode": "max", "padding_idx": 3}, (INDICES, torch.tensor([0, 2, 2, 5]))),
        ({"mode": "max"}, (INDICES[:0], torch.tensor([0, 0]))),
    ],
    ids=[
        *("sum", "padding", "last_offset", "rows", "weights", "empty", "frequency"),
        *("max", "max_padding", "max_empty"),
    ],
)
def test_embedding_bag(options: dict[str, Any], inputs: tuple[Any, ...]) -> None:
    torch.manual_seed(0)
    trains_as_eager(nn.EmbeddingBag(10, 3, **options), *inputs)


@pytest.mark.parametrize("options", [{"max_norm": 1.0}], ids=str)
def test_an_unusual_embedding_bag_is_refused_at_its_line(options: dict[str, Any]) -> None:
    compiled = fusewright.compile(nn.EmbeddingBag(10, 3, **options), options={"strict": True})
    with pytest.raises(BackendCompilerFailed, match=r"embedding_bag with gradients") as caught:
        compiled(INDICES.view(2, 3))
    assert caught.value.location is not None


def test_an_index_checked_inside_of_a_concatenation() -> None:
    """The check of a scalar index, made for some lanes of a vector only."""

    def program(table: torch.Tensor, index: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.cat([functional.embedding(index, table), other], -1)

    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    table, other = torch.randn(20, 8), torch.randn(3, 8)
    index = torch.tensor([3, 0, 19])
    torch.testing.assert_close(compiled(table, index, other), program(table, index, other))
    with pytest.raises(IndexError):
        compiled(table, torch.tensor([3, 20, 19]), other)
