"""What counts as writing twice to one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright.fuzz.repeated_writes import RepeatedWrites

Write = Callable[[torch.Tensor], Any]

TWICE: dict[str, Write] = {
    "scatter": lambda x: torch.scatter(x, 0, torch.zeros(2, 3, dtype=torch.int64), x[:2] + 1),
    "scatter_": lambda x: x.scatter_(1, torch.tensor([[0, 1, 0]]), torch.ones(1, 3)),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([1, 1]), x[:2]),
    "index_put": lambda x: torch.index_put(x, (torch.tensor([2, 2]),), x[:2]),
    "pairs": lambda x: torch.index_put(
        x, (torch.tensor([2, 2]), torch.tensor([0, 0])), torch.arange(2.0)
    ),
    "negative": lambda x: torch.index_put(x, (torch.tensor([3, -1]),), x[:2]),
    "an item": lambda x: x.__setitem__(torch.tensor([0, 0]), torch.ones(2, 3)),
}
ONCE: dict[str, Write] = {
    "scatter": lambda x: torch.scatter(x, 0, torch.tensor([[0, 0, 0], [1, 2, 1]]), x[:2] + 1),
    "a number": lambda x: torch.scatter(x, 0, torch.zeros(2, 3, dtype=torch.int64), 5.0),
    "scatter_add": lambda x: x.scatter_add(0, torch.zeros(2, 3, dtype=torch.int64), x[:2]),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([1, 0]), x[:2]),
    "accumulated": lambda x: torch.index_put(x, (torch.tensor([2, 2]),), x[:2], accumulate=True),
    "pairs": lambda x: torch.index_put(
        x, (torch.tensor([2, 2]), torch.tensor([0, 1])), torch.arange(2.0)
    ),
    "a mask": lambda x: x.__setitem__(x[:, 0] > 0, torch.ones(3)),
    "a slice": lambda x: x.__setitem__(slice(1, 3), torch.ones(3)),
    "read": lambda x: x[torch.tensor([0, 0])],
}


@pytest.mark.parametrize("write", TWICE.values(), ids=TWICE)
def test_two_writes_to_one_place_are_met(write: Write) -> None:
    with RepeatedWrites() as writes:
        write(torch.randn(4, 3))
    assert writes.met


@pytest.mark.parametrize("write", ONCE.values(), ids=ONCE)
def test_other_writes_are_not(write: Write) -> None:
    with RepeatedWrites() as writes:
        write(torch.randn(4, 3))
    assert not writes.met
