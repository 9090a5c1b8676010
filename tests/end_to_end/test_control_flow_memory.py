"""Conditions and loops whose functions read from outside, return what they were given, or are given
what is written to: beside the same in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import scan, while_loop

import fusewright
from fusewright import compilations, control_flow
from fusewright.containers import tensors

W = torch.randn(4, 4)

TORCH = SimpleNamespace(cond=torch.cond, scan=scan, while_loop=while_loop)
PYTHON = SimpleNamespace(
    cond=lambda predicate, yes, no, given: (yes if predicate else no)(*given),
    scan=control_flow.scan,
    while_loop=control_flow.while_loop,
)


def same_result_twice(flow: Any, x: Tensor) -> Any:
    def twice(a: Tensor) -> Any:
        result = a * 2
        return result, result * 1

    first, second = flow.cond(x.sum() > 0, twice, lambda a: (a.cos(), a * 3), (x,))
    return first.add_(1), second


def argument_returned(flow: Any, x: Tensor) -> Any:
    return flow.cond(x.sum() > 0, lambda a: a.clone(), lambda a: a * 1.0, (x,)), x


def written_before_and_after(flow: Any, x: Tensor) -> Any:
    x = x.clone()
    x.mul_(2)
    y = flow.cond(x.sum() > 0, lambda a: a * 2, lambda a: a + W[0], (x,))
    x.add_(1)
    return x, y


def written_inside(flow: Any, x: Tensor) -> Any:
    def yes(a: Tensor) -> Tensor:
        own = a.clone()
        own[0] = 1
        return own.mul_(2)

    return flow.cond(x.sum() > 0, yes, torch.cos, (x,))


def numbers_from_outside(flow: Any, x: Tensor) -> Any:
    factor, rows = 3, x.shape[0]
    return flow.cond(x.sum() > 0, lambda a: a * factor + rows, lambda a: a - rows, (x,))


def masks(flow: Any, x: Tensor) -> Any:
    return flow.cond(x.sum() > 0, lambda a: a > 0, lambda a: a < 0, (x,))


def carry_returned(flow: Any, x: Tensor) -> Any:
    return flow.scan(lambda c, a: (c + a, c), torch.zeros(4), x)


def slice_returned(flow: Any, x: Tensor) -> Any:
    return flow.scan(lambda c, a: (c + a, a), torch.zeros(4), x)


def carry_unchanged(flow: Any, x: Tensor) -> Any:
    carry, results = flow.scan(lambda c, a: (c, c + a), x[0], x)
    return carry * 2, results, x


def one_value_carried_twice(flow: Any, x: Tensor) -> Any:
    one, other = flow.scan(lambda c, a: ((c[0] + a, c[0] + a), c[1]), (x[0], x[1]), x)[0]
    return one.add_(1), other


def views_of_slices(flow: Any, x: Tensor) -> Any:
    return flow.scan(lambda c, a: (c + a.sum(), a.t()), torch.zeros(()), x.unflatten(1, (2, 2)))


def slices_of_one_memory(flow: Any, x: Tensor) -> Any:
    carry, results = flow.scan(
        lambda c, a: (c + a.sum(), a * c), x[0], x.unsqueeze(1).expand(-1, 2, 4)
    )
    return carry, results.sin()


def nested_containers(flow: Any, x: Tensor) -> Any:
    def step(carry: Any, given: Any) -> Any:
        return {"s": carry["s"] + given["u"]}, [given["v"] * carry["s"]]

    return flow.scan(step, {"s": torch.zeros(4)}, {"u": x, "v": x * 2})


def draws(flow: Any, x: Tensor) -> Any:
    return flow.scan(lambda c, a: (c + torch.rand(4), a * torch.rand(4)), torch.zeros(4), x)


def loop_of_what_is_outside(flow: Any, x: Tensor) -> Any:
    y = x * 2
    start = (torch.tensor(0), x)
    found = flow.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + y @ W), start)
    return found[1].add_(1), x, y


def loop_that_keeps(flow: Any, x: Tensor) -> Any:
    body = lambda i, a, b, c: (i + 1, a, c * 1, b + 1)  # noqa: E731
    return flow.while_loop(lambda i, *_: i < 3, body, (torch.tensor(0), x, x * 2, x.sin()))


PROGRAMS: list[Callable[..., Any]] = [
    same_result_twice,
    argument_returned,
    written_before_and_after,
    written_inside,
    numbers_from_outside,
    masks,
    carry_returned,
    slice_returned,
    carry_unchanged,
    one_value_carried_twice,
    views_of_slices,
    slices_of_one_memory,
    nested_containers,
    draws,
    loop_of_what_is_outside,
    loop_that_keeps,
]


def outcome(program: Callable[..., Any], flow: Any, x: Tensor) -> list[Any]:
    """The results, `x` as it is then, its gradient if it has one, and what is drawn next."""
    torch.manual_seed(1)
    results = list(tensors(program(flow, x)))
    found = [*results, x]
    tracked = [one for one in results if one.requires_grad]
    if x.requires_grad and tracked:
        loss = sum(one.square().sum() for one in tracked)
        found.append(torch.autograd.grad(loss, x, allow_unused=True)[0])
    return [*found, torch.rand(2)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_programs(program: Callable[..., Any]) -> None:
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    for rows in (3, 5, 4):
        for sign in (1, -1):
            values = sign * torch.rand(rows, 4)
            for requires_grad in (False, True):
                given = [values.clone().requires_grad_(requires_grad) for _ in range(2)]
                found = outcome(compiled, TORCH, given[0])
                expected = outcome(program, PYTHON, given[1])
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(compilations(compiled)) <= 4


def test_results_have_memory_of_their_own() -> None:
    compiled = fusewright.compile(loop_that_keeps, fullgraph=True, options={"strict": True})
    x = torch.rand(3, 4)
    results = compiled(TORCH, x)
    memory = {one.untyped_storage().data_ptr() for one in (x, *results)}
    assert len(memory) == 1 + len(results)
