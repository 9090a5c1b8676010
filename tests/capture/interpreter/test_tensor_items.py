"""Items of tensors at numbers that vary: one program for all of them, as in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fusewright

Item = Callable[[Tensor, int], Tensor]

PICKED = torch.tensor([0, 2])


def with_row(x: Tensor, n: int) -> Tensor:
    x[:, n] = x[:, 0] + 1
    return x


def with_number(x: Tensor, n: int) -> Tensor:
    y = x * 2
    y[1, n] = 3
    return y


def added_to(x: Tensor, n: int) -> Tensor:
    x[..., n, :] += 1
    return x


def in_several_places(x: Tensor, n: int) -> Tensor:
    x[n % 4, n, -n % 8 :] = 5
    return x


def of_indices(x: Tensor, n: int) -> Tensor:
    x[PICKED, n, 1:] = 5
    return x


ITEMS: dict[str, Item] = {
    "row": lambda x, n: x[:, n] * 2,
    "from the end": lambda x, n: x[:, -n] * 2,
    "behind an ellipsis": lambda x, n: x[..., n % 8] * 2,
    "new dimensions": lambda x, n: x[None, 1, n, None, 3:] * 2,
    "beside indices": lambda x, n: x[PICKED, n] * 2,
    "with row": with_row,
    "with number": with_number,
    "added to": added_to,
    "in several places": in_several_places,
    "of indices": of_indices,
}


@pytest.mark.parametrize("name", ITEMS)
def test_one_program_for_all_numbers(name: str) -> None:
    item = ITEMS[name]
    compiled = fusewright.compile(item, fullgraph=True, options={"strict": True})
    x = torch.randn(4, 64, 8)
    with torch.no_grad():
        for n in range(3, 8):
            ours, eager = x.clone(), x.clone()
            torch.testing.assert_close(compiled(ours, n), item(eager, n))
            assert torch.equal(ours, eager)
    assert len(fusewright.compilations(compiled)) == 2


@pytest.mark.parametrize("name", ["row", "from the end", "with row"])
def test_out_of_range(name: str) -> None:
    """Eager's own words."""
    item = ITEMS[name]
    compiled = fusewright.compile(item)
    x = torch.randn(4, 64, 8)
    for n in (3, 4):
        compiled(x, n)
    with pytest.raises(IndexError) as expected:
        item(x, 65)
    with pytest.raises(IndexError) as raised:
        compiled(x, 65)
    assert str(raised.value).splitlines()[0] == str(expected.value)
