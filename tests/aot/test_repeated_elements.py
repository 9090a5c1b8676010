"""Writes by index to expanded tensors reach the memory that several elements show."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fusewright

FIRST, COLUMN = torch.tensor([0]), torch.tensor([1])
BOTH, COLUMNS = torch.tensor([0, 0]), torch.tensor([2, 1])
VALUES = torch.tensor([9.0, 7.0])
MASK = torch.tensor([[False, True, False], [False, False, False]])

WRITES: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.__setitem__((FIRST, COLUMN), 5),
    "row": lambda x: x.__setitem__([0], 5),
    "column": lambda x: x.__setitem__((slice(None), [1]), 5),
    "last of two": lambda x: x.index_put_((BOTH, COLUMNS), VALUES),
    "sum of two": lambda x: x.index_put_((BOTH, COLUMNS), VALUES, accumulate=True),
    "rows": lambda x: x.index_fill_(0, torch.tensor([-1]), 5),
    "lower triangle": lambda x: x.tril_(),
    "upper triangle": lambda x: x.triu_(1),
    "columns": lambda x: x.index_fill_(1, COLUMN, torch.tensor(5.0)),
    "mask": lambda x: x.masked_fill_(MASK, 5),
    "row mask": lambda x: x.masked_fill_(MASK[0], torch.tensor(5.0)),
    "mask item": lambda x: x.__setitem__(MASK, 5),
    "mask of rows": lambda x: x.__setitem__(torch.tensor([True, False]), 5),
    "fill": lambda x: x.fill_(3),
    "part": lambda x: x[1].fill_(3),
}


@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors")
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("is_input", [True, False], ids=["input", "inside"])
def test_a_write_reaches_the_memory(name: str, is_input: bool) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        if not is_input:
            x = (x[:, :1] * 2).expand(2, 3)
        WRITES[name](x)
        return x * 1, x.sum()

    results = []
    for run in (program, fusewright.compile(program, fullgraph=True)):
        memory = torch.tensor([[1.0], [2.0]])
        results.append([*run(memory.expand(2, 3)), memory])
    for expected, actual in zip(*results, strict=True):
        assert torch.equal(actual, expected)
