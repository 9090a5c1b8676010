"""Collectives in a group of one process: code is for the group and the reduction that it was
compiled for. tests/distributed has groups of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor

import fusewright

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without distributed")

X = torch.arange(4.0)


def begin() -> None:
    """Make a default group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@pytest.fixture(autouse=True)
def groups() -> Iterator[None]:
    begin()
    yield
    dist.destroy_process_group()


def compiled(function: Any) -> Any:
    return fusewright.compile(function, backend="eager", fullgraph=True)


def count(function: Any) -> int:
    return len(fusewright.compilations(function))


def test_code_is_for_the_group_that_it_was_compiled_for() -> None:
    def written(x: Tensor, group: Any) -> Tensor:
        y = x + 1
        dist.all_reduce(y, group=group)
        return y * dist.get_world_size(group)

    def given(x: Tensor, group: Any) -> Tensor:
        return functional.all_reduce(x + 1, "sum", group)

    other = dist.new_group([0])
    for function in (written, given):
        run = compiled(function)
        for group in (dist.group.WORLD, other, dist.group.WORLD):
            assert torch.equal(run(X, group), X + 1)
        assert count(run) == 2


def test_code_is_for_the_default_group_that_there_was() -> None:
    def function(x: Tensor) -> Tensor:
        y = x + 1
        dist.all_reduce(y)
        return y + dist.get_rank()

    run = compiled(function)
    assert torch.equal(run(X), X + 1)
    dist.destroy_process_group()
    begin()
    assert torch.equal(run(X), X + 1) and count(run) == 2


def test_code_is_for_the_reduction_that_it_was_compiled_for() -> None:
    def function(x: Tensor, op: Any) -> Tensor:
        y = x * 2
        dist.all_reduce(y, op)
        return y

    run = compiled(function)
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.SUM):
        assert torch.equal(run(X, op), X * 2)
    assert count(run) == 2


def test_what_eager_refuses_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        gathered = torch.empty(4, dtype=torch.int64)
        dist.all_gather_into_tensor(gathered, x)
        return gathered

    run = fusewright.compile(function, backend="eager")
    with pytest.raises((RuntimeError, ValueError, TypeError)) as expected:
        function(X)
    with pytest.raises(type(expected.value)) as raised:
        run(X)
    assert str(raised.value) == str(expected.value)


def test_a_transposed_tensor_is_written() -> None:
    def function(x: Tensor) -> Tensor:
        dist.all_reduce(x.t())
        return x * 2

    run = fusewright.compile(function, backend="eager")
    assert torch.equal(run(torch.ones(2, 3)), torch.full((2, 3), 2.0))
