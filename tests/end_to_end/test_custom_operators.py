"""Custom operators that write to their arguments, and operators on lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from fusewright.errors import BackendCompilerFailed, Unsupported

CALLS: list[float] = []


@torch.library.custom_op("fusewright_tests::bump", mutates_args={"x"})
def bump(x: torch.Tensor, by: float = 1.0) -> None:
    CALLS.append(by)
    x.add_(by)


@torch.library.custom_op("fusewright_tests::swap", mutates_args={"x", "y"})
def swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    before = x.clone()
    x.copy_(y)
    y.copy_(before)
    return x - y


@swap.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def strict(program: Callable[..., Any]) -> Callable[..., Any]:
    return fusewright.compile(program, fullgraph=True, options={"strict": True, "verify": True})


def test_a_write_to_an_input_is_seen() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        bump(x, by=3.0)
        return x + doubled

    x = torch.zeros(3)
    assert strict(program)(x).tolist() == [3.0] * 3
    assert x.tolist() == [3.0] * 3


def test_a_write_to_a_view_is_seen_in_its_base() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        whole = x + 0
        bump(whole[1])
        return whole

    assert strict(program)(torch.zeros(2, 2)).tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_it_runs_once_for_each_call_even_if_nobody_reads_the_result() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        bump(x.clone(), 5.0)
        bump(x.clone(), 5.0)
        return x + 1

    compiled = strict(program)
    compiled(torch.zeros(2))
    CALLS.clear()
    compiled(torch.zeros(2))
    assert CALLS == [5.0, 5.0]


def test_results_come_beside_what_is_written() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return swap(x, y) * 2

    x, y = torch.zeros(2), torch.ones(2)
    assert strict(program)(x, y).tolist() == [2.0, 2.0]
    assert (x.tolist(), y.tolist()) == ([1.0, 1.0], [0.0, 0.0])


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: bump(x * 2), "gradients are tracked"),
        (lambda x: swap(x.detach(), x.detach()), "share memory"),
    ],
)
def test_what_copies_would_get_wrong_is_refused(program: Any, reason: str) -> None:
    with pytest.raises(BackendCompilerFailed, match=reason) as caught:
        strict(program)(torch.zeros(2, requires_grad=True))
    assert caught.value.location is not None


def test_lists_of_tensors_are_written_one_by_one() -> None:
    def program(first: torch.Tensor, second: torch.Tensor) -> list[torch.Tensor]:
        torch._foreach_mul_([first, second], [2.0, 3.0])
        return list(torch._foreach_norm([first, second]))

    first, second = torch.ones(4), torch.ones(2, 2)
    norms = strict(program)(first, second)
    assert [norm.item() for norm in norms] == [4.0, 6.0]
    assert (first.sum().item(), second.sum().item()) == (8.0, 12.0)


def test_gradients_are_clipped() -> None:
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.full((3,), 2.0)
    norm = strict(lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0))()
    assert norm.item() == pytest.approx(24**0.5)
    found = [parameter.grad for parameter in parameters if parameter.grad is not None]
    assert torch.cat(found).norm().item() == pytest.approx(1.0, abs=1e-4)


def test_an_input_whose_geometry_changes_is_refused_at_its_line() -> None:
    with pytest.raises(Unsupported, match="`as_strided_` gives a tensor that existed") as caught:
        strict(lambda x: x.as_strided_((2,), (1,)) * 2)(torch.zeros(2, 3))
    assert caught.value.location is not None
