"""Plans whose results lie in memory that the caller gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.native import CallPlan
from fusewright.runtime.generated import tensor_kind
from tests.native.test_call_plan import plan

KIND = tensor_kind(torch.float32, torch.device("cpu"))
NUMBERS = 0, 1, 3, 5  # an offset, a stride and a size among them


def allocation(slot: int) -> tuple[Any, ...]:
    """A vector of three."""
    return "allocate", slot, ~0, 1, 2, 1


def plan_of(*operations: tuple[Any, ...], inputs: int = 0) -> CallPlan:
    return plan(*operations, inputs=inputs, numbers=NUMBERS, constants=(KIND, torch.ones(3)))


def test_what_was_allocated_for_results_is_told_and_used_again() -> None:
    call = plan_of(allocation(0), allocation(1), ("copy", 1, ~1), ("release", 0), ("return", 1, 1))
    memory: list[Any] = []
    (result,) = call.run_into([], memory)
    assert memory == [result]
    result.zero_()
    (again,) = call.run_into([], memory)
    assert again is result
    torch.testing.assert_close(again, torch.ones(3))
    assert call([])[0] is not result


def test_memory_is_followed_to_the_results() -> None:
    call = plan_of(
        *(allocation(slot) for slot in range(4)),
        ("move", 4, 0),  # of slot 0
        ("reinterpret", 5, 1, 1, 1, 1, 1),  # of slot 1, from the second element
        allocation(2),  # in place of what was there
        ("return", 5, 4, 5, 5, 2, ~1),
    )
    memory: list[Any] = []
    moved, part, _, other, constant = call.run_into([], memory)
    assert memory[0] is moved and memory[2] is other and len(memory) == 3
    assert memory[1].untyped_storage() is part.untyped_storage()
    assert constant is not memory[0]
    again = call.run_into([], list(memory))
    assert [tensor.data_ptr() for tensor in again[:4]] == [
        *(tensor.data_ptr() for tensor in (moved, part, part, other)),
    ]


@pytest.mark.parametrize(
    "given",
    [
        torch.empty(4),
        torch.empty(3, dtype=torch.int32),
        torch.empty(6)[::2],
        torch.empty(3, 1),
        None,
        "memory",
    ],
)
def test_memory_that_does_not_fit_is_replaced(given: Any) -> None:
    memory = [given]
    (result,) = plan_of(allocation(0), ("return", 1, 0)).run_into([], memory)
    assert memory == [result] and result is not given
    assert result.shape == (3,)


def test_inputs_and_what_did_not_run_have_no_memory() -> None:
    call = plan_of(("skip", 1), allocation(1), ("return", 1, 0), inputs=1)
    memory: list[Any] = []
    x = torch.ones(3)
    inputs = [x]
    assert call.run_into(inputs, memory) == (x,)
    assert (inputs, memory) == ([], [])
    call = plan_of(allocation(0), ("skip", 1), allocation(1), ("return", 2, 0, ~1))
    call.run_into([], memory)
    assert len(memory) == 1


def test_a_plan_that_fails_leaves_the_memory_as_it_was() -> None:
    call = plan_of(allocation(0), ("copy", 0, 3), ("return", 1, 0))
    memory: list[Any] = [None]
    with pytest.raises(SystemError, match="empty slot"):
        call.run_into([], memory)
    assert memory == [None]
    with pytest.raises(TypeError):
        call.run_into((), memory)  # type: ignore[arg-type]
