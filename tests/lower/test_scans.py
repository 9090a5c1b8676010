"""Running sums and their like are loops that give what eager gives: values, types and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.context import CompileContext
from fusewright.ir.group import Group
from fusewright.schedule import schedule
from tests.lower.support import assert_same, check, lowered

RUNNING: dict[str, Callable[[Tensor, int], Any]] = {
    "sum": torch.cumsum,
    "product": lambda x, dim: torch.cumprod(x, dim),
    "sum in another type": lambda x, dim: torch.cumsum(x, dim, dtype=torch.float64),
    "sum of what another type holds": lambda x, dim: torch.cumsum(x, dim, dtype=torch.bfloat16),
    "sum of whole parts": lambda x, dim: torch.cumsum(x, dim, dtype=torch.int32),
    "maximum": torch.cummax,
    "minimum": torch.cummin,
}

FLOATING: dict[str, Callable[[Tensor, int], Any]] = {"logsumexp": torch.logcumsumexp}


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-9, 9, shape, generator=generator).div(4).to(dtype)


def eager_and_compiled(function: Callable[..., Any], *tensors: Tensor) -> None:
    compiled = fusewright.compile(function, fullgraph=True, options={"strict": True})
    assert_same(compiled(*tensors), function(*tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", RUNNING | FLOATING)
def test_as_in_eager(name: str, dtype: torch.dtype) -> None:
    if name in FLOATING and not dtype.is_floating_point:
        return
    function = (RUNNING | FLOATING)[name]
    for shape, dim in (((), 0), ((9, 1), 1), ((9, 5), 1), ((9, 70), -1), ((33, 5, 2), 0)):
        x = numbers(shape, dtype)
        tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype is torch.float32 else {}
        result = lowered(function, x, dim)
        assert not result.externs
        if dtype is not torch.bfloat16:  # of which the reference rounds each step
            assert_same(result.run(), function(x, dim), **tolerance)
        eager_and_compiled(lambda x, dim=dim: function(x, dim), x)


def test_layouts_and_empty_dimensions() -> None:
    x = torch.randn(4, 6, 10)
    for view in (x.permute(2, 0, 1), x[:, ::2], x[..., 3:4], x[:0], x[:, :0]):
        for dim in range(3):
            check(torch.cumsum, view, dim)
            check(torch.cummin, view, dim)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_positions_of_equals_and_of_nan(dtype: torch.dtype) -> None:
    """Of equals the last, zeros of either sign among them; NaN from the first on, the last of
    several.
    """
    nan, infinity = float("nan"), float("inf")
    x = torch.tensor([-infinity, -infinity, -0.0, 0.0, -0.0, 2, 2, 1, nan, 3, nan, infinity])
    for shift in range(12):
        row = x.roll(shift).to(dtype)
        for function in (torch.cummax, torch.cummin):
            eager_and_compiled(lambda row, function=function: function(row, 0), row)
            rows = row.expand(20, -1)
            eager_and_compiled(lambda rows, function=function: function(rows, 1), rows)


def test_halves_are_gathered_in_single_precision() -> None:
    """One by one in bfloat16, ones would never make more than 256."""
    eager_and_compiled(lambda x: x.cumsum(0), torch.ones(2000, dtype=torch.bfloat16))
    eager_and_compiled(lambda x: x.cumsum(0), torch.ones(2000, 3, dtype=torch.float16))


def test_integers_wrap() -> None:
    x = torch.full((3, 40), 200, dtype=torch.uint8)
    eager_and_compiled(lambda x: (x.cumsum(1), x.cumprod(1)), x)
    eager_and_compiled(lambda x: x.cumsum(1, dtype=torch.int8), x)


def test_a_size_that_varies() -> None:
    compiled = fusewright.compile(lambda x: (x.cumsum(1), x.cummax(0)), dynamic=True)
    for shape in ((3, 5), (7, 40), (2, 1), (0, 4), (4, 0), (65, 65)):
        x = torch.randn(shape)
        assert_same(compiled(x), (x.cumsum(1), x.cummax(0)))


@pytest.mark.parametrize("name", ["sum", "logsumexp", "maximum"])
def test_gradients(name: str) -> None:
    def function(x: Tensor) -> Tensor:
        result = (RUNNING | FLOATING)[name](x.sin(), 1)
        return (result if isinstance(result, Tensor) else result.values).square().sum()

    x = torch.randn(5, 33, dtype=torch.float64)
    eager, compiled = (x.clone().requires_grad_() for _ in range(2))
    function(eager).backward()
    fusewright.compile(function, fullgraph=True, options={"strict": True})(compiled).backward()
    torch.testing.assert_close(compiled.grad, eager.grad)


def test_nucleus_sampling_s_mask_is_one_kernel() -> None:
    result = lowered(lambda x: x.softmax(-1).cumsum(-1) - x.softmax(-1) < 0.9, torch.randn(4, 50))
    steps = schedule(result.program, CompileContext()).works
    assert [type(step) for step in steps] == [Group]


@pytest.mark.parametrize("dim", [0, 1])
def test_products_of_small_numbers_do_not_vanish_behind_an_infinite_one(dim: int) -> None:
    """An infinite product stays so: of two numbers of bfloat16, the product may be 0 in float32."""
    row = torch.tensor([2.0, torch.inf, 1.0, *[3e-38] * 13], dtype=torch.bfloat16)
    x = row.expand(16, 16).contiguous() if dim else row[:, None].expand(16, 16).contiguous()
    result = fusewright.compile(lambda x: x.cumprod(dim), options={"strict": True})(x)
    assert torch.equal(result, x.cumprod(dim))
