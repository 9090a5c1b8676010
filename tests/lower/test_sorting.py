"""Stable sorts of short rows are loops, with eager's order of equals and of NaN."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import fusewright
from tests.lower.support import assert_same, lowered

SHAPES = [
    ((), 0),
    ((5,), 0),
    ((3, 17), 1),
    ((3, 17), 0),
    ((2, 64, 3), 1),
    ((4, 0), 1),
    ((2, 128), 1),
]


def ordered(x: Tensor, dim: int, descending: bool) -> tuple[Tensor, ...]:
    result = torch.sort(x, dim=dim, descending=descending, stable=True)
    return (*result, torch.argsort(x, dim=dim, descending=descending, stable=True))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_as_in_eager(dtype: torch.dtype, descending: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    for shape, dim in SHAPES:
        x = torch.randint(-4, 5, shape, generator=generator).to(dtype)
        if dtype.is_floating_point and x.numel() > 8:
            special = [float("nan"), -0.0, 0.0, float("inf"), float("nan"), float("-inf"), -0.0]
            x.view(-1)[:7] = torch.tensor(special)
        result = lowered(ordered, x, dim, descending)
        assert not result.externs
        wanted = ordered(x, dim, descending)
        assert_same(result.run(), wanted)
        compiled = fusewright.compile(ordered, fullgraph=True, options={"strict": True})
        values, *places = compiled(x, dim, descending)
        assert_same((values, *places), wanted)
        if dtype.is_floating_point:
            assert torch.equal(torch.signbit(values), torch.signbit(wanted[0]))


def test_other_sorts_are_the_library_s() -> None:
    assert lowered(lambda x: x.sort(-1), torch.randn(3, 8)).externs
    assert lowered(lambda x: x.sort(dim=-1, stable=True), torch.randn(3, 129)).externs


def test_gradients() -> None:
    def function(x: Tensor) -> Tensor:
        return (torch.sort(x, dim=1, stable=True).values * torch.arange(20)).sum()

    x = torch.randn(5, 20)
    eager, compiled = (x.clone().requires_grad_() for _ in range(2))
    function(eager).backward()
    fusewright.compile(function, fullgraph=True)(compiled).backward()
    torch.testing.assert_close(compiled.grad, eager.grad)
