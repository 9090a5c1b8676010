"""Programs with symbolic sizes: lowered once, evaluated for other sizes than the examples had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.lower.support import assert_same, lowered_dynamic


def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    heads = (x @ w).view(batch, length, 4, width // 4).transpose(1, 2)
    scores = torch.softmax(heads @ heads.transpose(-1, -2) / 2.0, -1)
    return (scores @ heads).transpose(1, 2).reshape(batch, length, width)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gelu": lambda x, w: F.gelu(x) * 2,
    "softmax": lambda x, w: torch.softmax(x, 1),
    "layer norm": lambda x, w: F.layer_norm(x, (16,)),
    "mean over a symbolic dimension": lambda x, w: x.mean(1),
    "variance over symbolic dimensions": lambda x, w: x.var((0, 1)),
    "attention": attention,
    "flatten": lambda x, w: x.flatten(0, 1).t() + 1,
    "merge and split": lambda x, w: (x.transpose(0, 1).reshape(-1, 16) * 2).view(
        x.shape[1], -1, 16
    ),
    "slices": lambda x, w: x[:, 1:] + x[:, :-1],
    "strided slice": lambda x, w: x[:, ::2] * 1.0,
    "last": lambda x, w: x[:, -1] + 1,
    "concatenation": lambda x, w: torch.cat([x, x * 2], 1),
    "flip": lambda x, w: x.flip(1) + 0,
    "positions": lambda x, w: x + torch.arange(x.shape[1]).view(1, -1, 1),
    "causal mask": lambda x, w: torch.tril(torch.ones(x.shape[1], x.shape[1])),
    "sizes as numbers": lambda x, w: x * x.shape[1],
    "full reduction": lambda x, w: x.sum(),
    "argmax": lambda x, w: x.argmax(1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_sizes(name: str) -> None:
    torch.manual_seed(0)
    function = FUNCTIONS[name]
    weight = torch.randn(16, 16)
    examples = (torch.randn(3, 10, 16), weight.clone())
    tensors = (torch.randn(5, 7, 16), weight)
    result = lowered_dynamic(function, examples, {0: (0, 1)}, tensors)
    assert_same(result.run(), function(*tensors), rtol=1e-5, atol=1e-5)


def test_embedding_of_symbolic_length() -> None:
    table = torch.randn(11, 4)
    ids, others = torch.randint(0, 11, (2, 6)), torch.randint(0, 11, (3, 9))
    result = lowered_dynamic(F.embedding, (ids, table.clone()), {0: (0, 1)}, (others, table))
    assert_same(result.run(), F.embedding(others, table))
