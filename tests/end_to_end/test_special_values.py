"""A sample of the sweep over special values, and what it, or random programs, once found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fusewright
from fusewright.lower.rules import words
from tests.end_to_end.special_values import (
    EXACT,
    cases,
    check,
    differences,
    is_known,
    run,
    zero_below,
)

EVERY = 53
"""One of so many pairs of a case and a type; a prime, so that it meets all types."""

ALWAYS = words(
    """
    F.gelu:tanh F.silu F.softplus F.logsigmoid F.mish F.elu F.selu F.celu F.hardswish F.relu6
    logit erfinv log1p(exp) sigmoid pow atan2 hypot nextafter copysign logaddexp xlogy maximum fmax
    prod argmax softmax logsumexp layer_norm
    """
)
"""Cases that are tried in single precision whatever the sample is: asymptotes, IEEE's corners."""

ALL_PAIRS = [
    (case, dtype) for case in cases() for dtype in case.dtypes if not is_known(case, dtype)
]
PAIRS = [
    pair
    for number, pair in enumerate(ALL_PAIRS)
    if number % EVERY == 0 or (pair[0].name in ALWAYS and pair[1] is torch.float32)
]


@pytest.mark.parametrize(
    ("case", "dtype"), PAIRS, ids=[f"{case.name} {str(dtype)[6:]}" for case, dtype in PAIRS]
)
def test_special_values_are_as_in_eager(case: Any, dtype: torch.dtype) -> None:
    assert list(check(case, dtype)) == []


AS_GOOD_AS_ZERO = [
    # Eager's number, the compiled one, that of double precision, and whether it is a difference.
    ("F.silu", -8.64e-37, -0.0, -8.63e-37, False),
    ("F.silu", -8.64e-33, -0.0, -8.63e-33, True),
    ("F.silu", 0.0, -0.0, 0.0, True),
    ("F.gelu:tanh", -0.0, -1.2e-37, -1.2e-37, False),
    ("F.gelu:tanh", -1.2e-37, -0.0, -1.2e-37, False),
    ("F.gelu:tanh", -1.2e-32, -0.0, -1.2e-32, True),
    ("logaddexp", 3.76e-39, 2.94e-39, 3.758e-39, False),
    ("logaddexp", 3.76e-37, 2.94e-37, 3.758e-37, True),
    ("F.mish", -8.64e-37, -0.0, -8.63e-37, False),
    ("F.mish", -8.64e-33, -0.0, -8.63e-33, True),
    ("F.softsign", -8.64e-37, -0.0, -8.63e-37, True),
    ("tanh", 0.0, 1.7e-17, 1.7e-17, False),
    ("tanh", 0.0, 1.7e-17, 0.0, True),
]


@pytest.mark.parametrize(("name", "eager", "compiled", "exact", "is_found"), AS_GOOD_AS_ZERO)
def test_what_a_gpu_rounds_to_zero(
    name: str, eager: float, compiled: float, exact: float, is_found: bool
) -> None:
    (case,) = (case for case in cases() if case.name == name)
    numbers = [torch.tensor([number], dtype=torch.bfloat16) for number in (eager, compiled)]
    double = torch.tensor([exact], dtype=torch.float64)
    found = differences(case, "gradient 0", *numbers, double, double, zero_below(name))
    assert bool(list(found)) == is_found


NOT_CANCELLED = [
    # A result or gradient at a number, which 1 - tanh² and 1 + tanh of doubles have as 0.
    ("tanh", "slope", 20.0, 4 * math.exp(-40)),
    ("F.gelu:tanh", "value", -8.0, -3.1037e-21),
    ("F.gelu:tanh", "slope", -8.0, -4.7178e-20),
]


@pytest.mark.parametrize(("name", "part", "x", "exact"), NOT_CANCELLED)
def test_what_cancels_is_judged_by_a_formula_that_does_not(
    name: str, part: str, x: float, exact: float
) -> None:
    found = getattr(EXACT[name], part)(torch.tensor([x], dtype=torch.float64))
    assert found.item() == pytest.approx(exact, rel=1e-4)


def test_what_is_raised_to_a_power_is_judged_by_its_error() -> None:
    """The logarithms behind a gradient of logcumsumexp are some thousand, in a row of such numbers:
    an error of theirs is as many units in the gradient's last place. Elsewhere it is too much.
    """
    (case,) = (case for case in cases() if case.name == "logcumsumexp")
    argument = case.arguments(torch.float32)[0][0]
    gradient = run(case.program, [argument.double()])[1][1]
    eager = gradient.float()
    for row, error, is_found in ((17, 8e-5, False), (17, 1e-3, True), (0, 8e-5, True)):
        other = eager.clone()
        other[row, 3] = eager[row].max() * error + other[row, 3]
        found = differences(case, "gradient 0", eager, other, gradient, argument)
        assert any(difference.why == "number" for difference in found) == is_found


def compiled(program: Callable[..., Any]) -> Callable[..., Any]:
    return fusewright.compile(program, dynamic=False, options={"strict": True})  # type: ignore[no-any-return]


def gradient(program: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    program(leaf).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


FAR = torch.tensor([10.0, -10.0, 1e20, -1e20, -math.inf, 6.0, -6.0] * 16)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_zero_far_below_zero(approximate: str) -> None:
    """erf ended one step below 1, which a large factor made a large number."""

    def program(x: Tensor) -> Tensor:
        return F.gelu(x, approximate=approximate)

    result, wanted = compiled(program)(FAR), program(FAR)
    assert torch.equal(result.isnan(), wanted.isnan())
    torch.testing.assert_close(result, wanted, rtol=1e-6, atol=0, equal_nan=True)
    near = FAR[FAR.abs() <= 10]
    slope = gradient(compiled(program), near)
    torch.testing.assert_close(slope, gradient(program, near), rtol=1e-5, atol=1e-7)


def test_a_product_that_is_computed_twice_is_one_number() -> None:
    """The greatest share of a softmax is 1, however large the scores: each was once a rounded
    product, and once a product within a sum.
    """
    x, y = torch.randn(8, 33) * 1e18, torch.randn(8, 33) * 1e18

    def shares(x: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(x * y, 1)

    result = compiled(shares)(x, y)
    assert torch.equal(result, shares(x, y))
    assert torch.equal(result.amax(1), torch.ones(8))


def test_equal_products_cancel() -> None:
    x, y = torch.randn(1000), torch.randn(1000)
    assert not compiled(lambda x, y: x * y - y * x)(x, y).any()


def test_a_sum_of_products_is_rounded_as_in_eager() -> None:
    x, y, z = torch.randn(3, 1000)

    def program(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return x * y + z - x * z

    assert torch.equal(compiled(program)(x, y, z), program(x, y, z))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", [3, 7, 13, 24, 100, 1000])
def test_equal_numbers_do_not_vary(dtype: torch.dtype, count: int) -> None:
    """The mean of equal numbers, rounded, is not always that number."""
    x = torch.tensor([0.1, -3.3, 7.7, 1e-3, 123.456, 0.0], dtype=dtype)[:, None]

    def program(x: Tensor) -> tuple[Tensor, ...]:
        wide = x.expand(-1, count)
        return wide.var(1), wide.std(1, correction=0), *torch.var_mean(wide, 1)

    variance, deviation, again, mean = compiled(program)(x)
    assert not variance.any() and not deviation.any() and not again.any()
    assert torch.equal(mean, x[:, 0])


def test_a_variance_is_exact_beside_a_large_mean() -> None:
    x = torch.randn(8, 300) + 1e4
    exact = x.double().var(1)
    error = (compiled(lambda x: x.var(1))(x).double() - exact).abs() / exact
    assert error.max() < 1e-6


def test_a_variance_without_degrees_of_freedom_is_as_in_eager() -> None:
    x = torch.tensor([[0.1] * 5, [1.0, 2, 3, 4, 5]])

    def program(x: Tensor) -> Tensor:
        return x.var(1, correction=7)

    torch.testing.assert_close(compiled(program)(x), program(x), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_next_number_is_one_of_its_type(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, -2.0, 0.0, math.inf, 3.5], dtype=dtype)
    y = torch.tensor([2.0, 0.0, -1.0, 0.0, 3.5], dtype=dtype)
    assert torch.equal(compiled(torch.nextafter)(x, y), torch.nextafter(x, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logsigmoid_of_a_half_type_has_a_gradient(dtype: torch.dtype) -> None:
    """Its forward keeps no buffer, for which eager's backward asked."""
    x = torch.linspace(-20, 20, 41).to(dtype)
    expected = gradient(F.logsigmoid, x)
    torch.testing.assert_close(gradient(compiled(F.logsigmoid), x), expected)


def test_fmax_and_fmin_take_the_first_of_two_zeros() -> None:
    x, y = (
        torch.tensor([0.0, -0.0, math.nan, 1.0] * 8),
        torch.tensor([-0.0, 0.0, 2.0, math.nan] * 8),
    )
    for function in (torch.fmax, torch.fmin):
        result, wanted = compiled(function)(x, y), function(x, y)
        assert torch.equal(result, wanted) and torch.equal(result.signbit(), wanted.signbit())


def test_what_runs_within_a_library_call_is_not_cast_by_autocast() -> None:
    """cdist, which autocast computes in float32, is a product within."""
    x = torch.randn(65, 8)
    with torch.autocast("cpu"):
        wanted = torch.cdist(x, x + 1)
        result = compiled(lambda x: torch.cdist(x, x + 1))(x)
    assert result.dtype is wanted.dtype is torch.float32
    torch.testing.assert_close(result, wanted)


def test_dropout_outside_training_is_its_argument_in_inference_mode() -> None:
    def program(x: Tensor) -> Tensor:
        value = x + 1
        kept = F.dropout(value, 0.3, training=False)
        value.mul_(2)
        return kept

    x = torch.randn(6)
    with torch.inference_mode():
        assert torch.equal(compiled(program)(x), program(x))
