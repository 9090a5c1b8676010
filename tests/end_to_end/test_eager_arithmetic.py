"""Operators whose results are eager's to the last bit, the sign of a zero included."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import fusewright

SPECIAL = [1.5, -0.0, 0.0, 100.0, -100.0, math.inf, -math.inf, math.nan]


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are alike, in type and in the signs of zeros too; NaN equals NaN."""
    same = torch.equal(one.nan_to_num(7), other.nan_to_num(7)) and one.dtype == other.dtype
    return same and torch.equal(one.signbit() | one.isnan(), other.signbit() | other.isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("value", [1, 3, -2.5, 0.3])
def test_addcmul_rounds_as_eager(dtype: torch.dtype, value: float) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(x, y, z, value=value)

    x, y, z = torch.randn(3, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.where(x > 0, x, -value * y * z)  # where the sum cancels
    inputs = [tensor.to(dtype) for tensor in (x, y, z)]
    assert equal(fusewright.compile(program)(*inputs), program(*inputs))


@pytest.mark.parametrize("alpha", [0, 0.0, 1, 2])
@pytest.mark.parametrize("operator", [torch.add, torch.sub, torch.rsub])
def test_a_factor_of_zero_is_multiplied_by(
    operator: Callable[..., torch.Tensor], alpha: float
) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [operator(x, y, alpha=alpha), operator(x, x, alpha=alpha)]

    x, y = torch.tensor(SPECIAL).repeat(8), torch.tensor(SPECIAL).repeat_interleave(8)
    for actual, expected in zip(fusewright.compile(program)(x, y), program(x, y), strict=True):
        assert equal(actual, expected)


def _gradients(
    program: Callable[..., torch.Tensor], inputs: list[torch.Tensor]
) -> list[torch.Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    result = program(*leaves)
    return [result.detach(), *torch.autograd.grad(result.sum(), leaves)]


@pytest.mark.parametrize("loss", [F.smooth_l1_loss, F.mse_loss, F.l1_loss])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_losses_of_two_types(loss: Callable[..., torch.Tensor], reduction: str) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return loss(x, y, reduction=reduction)

    for dtype in (torch.float64, torch.float16):
        single, other = torch.tensor([0.3, 1.7]), torch.tensor([0.1, 0.2], dtype=dtype)
        for inputs in ([single, other], [other, single]):
            expected = _gradients(program, inputs)
            actual = _gradients(fusewright.compile(program), inputs)
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("start", "end"), [(-1, 1), (0.1, 7.3), (-3, 12.7), (1e30, -1e38)])
def test_linspace_rounds_once(dtype: torch.dtype, start: float, end: float) -> None:
    for steps in (2, 3, 8, 17, 21, 100, 1000):

        def program(steps: int = steps) -> torch.Tensor:
            return torch.linspace(start, end, steps, dtype=dtype) * 1

        assert equal(fusewright.compile(program)(), program())


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.sum(), (400_000,)),
        (lambda x: (x * 2).sum((0, 1)), (3, 40_000, 8)),
        (lambda x: (x + x.transpose(1, 2)).sum(), (2, 512, 512)),
        (lambda x: (x.permute(0, 2, 3, 1) * 1.5).sum(), (2, 64, 56, 56)),
        (lambda x: (x[:, ::2] * 2).sum(), (2, 200_001)),
        (lambda x: (x * x.relu()).sum((0, 1, 2)), (2, 56, 56, 64)),
    ],
)
def test_long_sums_are_as_close_as_eager(
    function: Callable[..., torch.Tensor], shape: tuple[int, ...]
) -> None:
    """However the loops are nested, no accumulator takes in many elements one after another."""
    compiled = fusewright.compile(function, options={"strict": True})
    mine = theirs = 0.0
    for seed in range(8):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        exact = function(x.double())
        mine += float((compiled(x) - exact).abs().mean())
        theirs += float((function(x) - exact).abs().mean())
    assert mine < 3.5 * theirs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("steps", [17, 50, 3001])
def test_linspace_of_half_types_rounds_at_every_step(dtype: torch.dtype, steps: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linspace(-3.3, 9.7, steps, dtype=dtype) + x

    x = torch.zeros((), dtype=dtype)
    assert equal(fusewright.compile(function)(x), function(x))


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-22, 1.0, 1e19, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_deviations_of_numbers_far_from_one(scale: float, dtype: torch.dtype) -> None:
    """The squares of such numbers are out of range."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x.std(), x.std(0), x.std(1), *torch.std_mean(x, 1), x.var(1))

    x = (torch.arange(21.0, dtype=torch.float64).reshape(3, 7).sin() * scale).to(dtype)
    for one, other in zip(fusewright.compile(function)(x), function(x), strict=True):
        torch.testing.assert_close(one, other, rtol=8e-3 if dtype.itemsize == 2 else 1e-6, atol=0)


@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 4, 0)], ids=str)
def test_the_gradient_of_a_norm_of_nothing(shape: tuple[int, ...]) -> None:
    x = torch.empty(shape, requires_grad=True)
    compiled = fusewright.compile(lambda x: F.layer_norm(x, shape[1:]), options={"strict": True})
    compiled(x).sum().backward()
    assert x.grad is not None and x.grad.shape == shape


@pytest.mark.parametrize("eps", [None, 0.0, 0.1, 0.5, 0.6, 1.0])
def test_bounds_of_logit_may_cross(eps: float | None) -> None:
    x = torch.tensor([0.0, 0.2, 0.45, 0.5, 0.55, 0.9, 1.0, math.nan])
    actual, expected = fusewright.compile(lambda x: torch.logit(x, eps))(x), torch.logit(x, eps)
    torch.testing.assert_close(actual, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [(4000,), (1,), ()], ids=str)
def test_quotients_of_half_types_are_cut_off_as_in_eager(
    dtype: torch.dtype, size: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(0)
    left = (3 * torch.randn(4000, generator=generator)).to(dtype)
    right = torch.randn(size, generator=generator).to(dtype)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.div(x, y, rounding_mode="trunc")

    assert equal(fusewright.compile(program)(left, right), program(left, right))
