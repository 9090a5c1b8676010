"""Tensors computed from no input: their values are known, unless something else was written to
them, they are random, or they were never set.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from tests.capture.torch_cases import Cases

N = 1026
X = torch.arange(2.0 * N).reshape(2, N)

cases = Cases()


@cases(X)
def positions(x: Any) -> Any:
    """As models check them against the length of a table."""
    rows = torch.arange(x.shape[1]).unsqueeze(0).expand(x.shape)
    return x * rows.max().item() + rows[0, 7:9].tolist()[1]


@cases(X)
def padded_mask(x: Any) -> Any:
    """As models ask whether anything is to be masked."""
    mask = functional.pad(x.new_ones(x.shape), (0, 2), value=0.0)
    if (mask == 0).any():
        return x + 1
    return x


@cases(X)
def index_of_a_list(x: Any) -> Any:
    return [x, x + 1, x + 2][(torch.arange(N) == 1).int().argmax()]


@cases(X)
def known_numbers_written(x: Any) -> Any:
    mask = torch.zeros(N)
    first = mask.sum().item()
    mask[1:3] = 2
    mask += 1
    return x * first + mask.sum().item()


@cases(X)
def known_numbers_written_through_views(x: Any) -> Any:
    sums = torch.zeros(2, 3)
    row, before = sums[1], sums.clone()
    row += torch.arange(3.0)
    sums.t_()
    return x + before.sum().item(), sums.tolist()


@cases(X)
def needed_on_the_way(x: Any) -> Any:
    """One call computes them, and reads them."""
    rows = torch.arange(3)
    return functional.one_hot(rows) + x[0, :3], torch.cov(x.T[:4]), x[:, :3].T[rows < 2]


@cases(X)
def computed_in_another_type(x: Any) -> Any:
    """By autocast, which has ended when they are read."""
    with torch.autocast("cpu", torch.bfloat16):
        product = torch.full((2, 2), 1.01) @ torch.full((2, 2), 1.01)
    return x + product.float().sum()


@cases(X)
def read_by_functions_inside(x: Any) -> Any:
    rows = torch.arange(3)
    return torch.func.vmap(lambda row: row * rows.sum().item())(x)


@cases(X, breaks="tensor-value")
def computed_in_another_type_and_read(x: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        product = torch.full((2, 2), 1.01) @ torch.full((2, 2), 1.01)
    return x + product.float().sum().item()


@cases(X, breaks="tensor-value")
def input_written(x: Any) -> Any:
    sums = torch.zeros(N)
    sums[1] = x.sum()
    return x + sums.max().item()


@cases(X, breaks="tensor-value")
def input_written_through_a_view(x: Any) -> Any:
    sums = torch.zeros(N)
    row = sums[1:2]
    row += x[1, 1]
    return x + sums.max().item()


@cases(X, breaks="tensor-value")
def input_written_after_the_first_reading(x: Any) -> Any:
    sums = torch.zeros(N)
    row, before = sums[1:2], sums.sum().item()
    row += x[1, 1]
    return x + before + sums.sum().item()


@cases(X, breaks="fake-execution")
def filled_with_an_input(x: Any) -> Any:
    return x + x.new_full((N,), x[0, 1]).max().item()


@cases(X, breaks="tensor-value")
def random_numbers(x: Any) -> Any:
    return x + torch.rand(N).max().item()


@cases(X, breaks="branch-on-tensor")
def memory_as_it_was_found(x: Any) -> Any:
    return x + 1 if (torch.empty(N) < 5).logical_not().any() else x + 1.0


@torch.library.custom_op("known_values::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@cases(X, breaks="tensor-value")
def functions_of_users_are_not_run(x: Any) -> Any:
    return x + doubled(torch.arange(N) * 0.5).sum().item()


test_known_values = cases.test()
