"""Floats and integers that vary from call to call: how often programs are compiled for them, and
that all agree with eager to the last bits that a type has.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fusewright
from fusewright.api import compilations
from fusewright.number_functions import FUNCTIONS_OF_ONE

Program = Callable[[Tensor, Any], Any]

pytestmark = pytest.mark.dynamic(None)  # each compile is counted

X = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
FLOATS = (0.5, 0.25, 3.0, 1e-3, 1 / 3, 1.0, 0.0, 1e300)
SIGNED = (0.5, -0.25, 3.0, -0.0, 1.0, -1e-3, 1e-310)

SCALARS: dict[str, Program] = {
    "a factor": lambda x, s: x * s,
    "a summand": lambda x, s: s - (x + s),
    "alpha": lambda x, s: x.add(x, alpha=s).sub(x.exp(), alpha=-s),
    "written in place": lambda x, s: x.clone().mul_(s).add_(x, alpha=2 * s),
    "a divisor": lambda x, s: x / (s + 3) + s / x.exp(),
    "a bound": lambda x, s: x.clamp(min=-s, max=s + 2).clamp_min(s),
    "compared with elements": lambda x, s: torch.where(x > s, x, s),
    "filled in": lambda x, s: x.masked_fill(x > 0, s) + torch.full((7,), s, dtype=x.dtype),
    "weights": lambda x, s: torch.addcmul(x, x, x, value=s) + torch.lerp(x, x * 2, s),
    "a remainder": lambda x, s: x % (s + 3),
    "an activation": lambda x, s: F.leaky_relu(x, s) + F.elu(x, s) + F.softplus(x, s + 1),
    "a library call": lambda x, s: torch.addmm(x[:, :5], x, x.t(), beta=s, alpha=2 * s),
    "of integers": lambda x, s: x.to(torch.int64) * s,
    "lists of tensors": lambda x, s: torch._foreach_add(torch._foreach_mul([x, x], s), [x, x]),
    "arithmetic": lambda x, s: x * ((s + 2) * 3 - s / 4),
    "handed out": lambda x, s: (x * s, s, s * 2 + 1),
}


def calls(
    function: Callable[..., Any], values: Sequence[Any], backend: Any = "fusewright", **options: Any
) -> int:
    """How often `function(X, value)` is compiled for these values; results must be eager's."""
    compiled = fusewright.compile(
        function, backend=backend, fullgraph=True, options={"strict": True}, **options
    )
    for value in values:
        expected, found = function(X, value), compiled(X, value)
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13, equal_nan=True)
    return len(compilations(compiled))


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", SCALARS)
def test_a_float_that_varies_is_compiled_for_once(name: str, backend: str) -> None:
    assert calls(SCALARS[name], FLOATS[:6], backend) == 2


@pytest.mark.parametrize("name", ["a factor", "a summand", "alpha", "handed out"])
def test_any_finite_float(name: str) -> None:
    assert calls(SCALARS[name], (*FLOATS, *SIGNED)) == 2


def test_numbers_that_are_not_finite_are_compiled_for_themselves() -> None:
    values = (0.5, 0.25, math.inf, 2.0, math.nan, 4.0, math.inf)
    assert calls(lambda x, s: x * s, values) == 4


def test_why_an_infinite_number_is_compiled_for() -> None:
    explained = fusewright.explain(lambda x, s: x * s, backend="eager")
    for value in (0.5, 0.25, math.inf):
        found = explained(X, value)
    assert "s: was a finite number, is inf" in str(found)


def test_a_power() -> None:
    assert calls(lambda x, s: x.abs().pow(s), (2.5, 3.5, 0.25, 7.0)) == 2


def test_the_sign_of_zero() -> None:
    compiled = fusewright.compile(lambda x, s: x * s, fullgraph=True)
    one = torch.ones(3)
    for value in (0.5, 0.25, 0.0, -0.0, 0.0):
        assert torch.signbit(compiled(one, value)).all() == (math.copysign(1, value) < 0)


def test_double_precision_is_kept() -> None:
    """Numbers that no float32 holds."""

    def program(x: Tensor, s: float) -> Tensor:
        return x * s + (s + 1e-12)

    assert calls(program, (0.1, 1 + 1e-15, 1e-200, 16777217.0, 1e200)) == 2


def branches(x: Tensor, s: float) -> Tensor:
    return x * s if s > 0.5 else x - s


def test_control_flow_is_guarded_and_nothing_else() -> None:
    assert calls(branches, (0.1, 0.25, 0.4, 0.7, 0.9, 3.0, -7.0, 0.5)) == 3
    explained = fusewright.explain(branches, backend="eager")
    for value in (0.1, 0.25, 0.7):
        found = explained(X, value)
    assert "s == 0.7" in str(found)
    assert "0.5 < s" in str(found)


def test_truth_and_bounds() -> None:
    def program(x: Tensor, p: float) -> Tensor:
        if p < 0.0 or p > 1.0:
            raise ValueError(f"{p} is no probability")
        return x * p if p else x

    assert calls(program, (0.5, 0.25, 0.75, 0.0, 1.0, 0.1)) == 3
    compiled = fusewright.compile(program, fullgraph=True)
    for value in (0.5, 0.25, 0.75):
        compiled(X, value)
    with pytest.raises(ValueError, match=r"2\.5 is no probability"):
        compiled(X, 2.5)


def test_greatest_and_least() -> None:
    assert calls(lambda x, s: x * max(s, 0.3) + min(s, 2.0), (0.5, 0.6, 1.5, 0.7)) == 2


OF_NUMBERS: dict[str, Callable[[float], float]] = {
    **{name: getattr(math, name) for name in FUNCTIONS_OF_ONE if hasattr(math, name)},
    "floor": lambda s: float(math.floor(8 * s)),
    "trunc": lambda s: float(math.trunc(-8 * s)),
    "rint": lambda s: float(round(8 * s)),
    "floordiv": lambda s: -8 * s // 0.7,
    "remainder": lambda s: -s % 0.9,
    "fmod": lambda s: math.fmod(-8 * s, 0.9),
    "atan2": lambda s: math.atan2(s, -1),
    "copysign": lambda s: math.copysign(s, -1) + s,
    "logarithm": lambda s: math.log(s, 0.3),
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_what_is_computed_of_a_number_is_compared_as_in_python(name: str) -> None:
    """By the guard: each side is compiled once, and neither runs for the other's numbers."""
    function = OF_NUMBERS[name]
    limit = function(0.4)
    values = (0.9, 0.5, 0.25, 0.3, 0.7, 0.35, 0.6, 0.1, 0.8)

    def program(x: Tensor, s: float) -> Tensor:
        return x + 1 if function(s) < limit else x - 1

    assert calls(program, values, "eager", recompile_limit=20) <= (
        3 if name not in ("floor", "trunc", "rint") else 9
    )


def test_division_by_zero_is_pythons() -> None:
    compiled = fusewright.compile(lambda x, s: x * (1 / s), fullgraph=True)
    for value in (0.5, 0.25, 4.0):
        assert torch.equal(compiled(X, value), X * (1 / value))
    with pytest.raises(ZeroDivisionError):
        compiled(X, 0.0)


def test_division_by_zero_is_cpps_in_gradients() -> None:
    """A variance of as many elements as its correction has no degree of freedom."""

    def program(x: Tensor) -> Tensor:
        return x.var(0, correction=2)

    compiled = fusewright.compile(program, dynamic=True, options={"strict": True})
    for rows in (2, 3, 1):
        x = torch.randn(rows, 3, requires_grad=True)
        with warnings.catch_warnings(action="ignore"):
            (wanted,) = torch.autograd.grad(program(x).sum(), x)
            (found,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(found, wanted, equal_nan=True)


def test_what_overflows_raises_as_in_eager() -> None:
    compiled = fusewright.compile(lambda x, s: x * s**2.0, fullgraph=True)
    for value in (0.5, 0.25, 4.0):
        torch.testing.assert_close(compiled(X, value), X * value**2)
    with pytest.raises(OverflowError):
        compiled(X, 1e300)


def test_a_call_that_needs_the_number_is_compiled_for_each() -> None:
    assert calls(lambda x, s: x.norm(p=s), (0.5, 0.25, 0.125)) == 3


def test_attributes_and_globals() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.5

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale

    module = Scaled()
    compiled = fusewright.compile(module, fullgraph=True, options={"strict": True})
    for value in (0.5, 0.25, 3.0, 7.5):
        module.scale = value
        assert torch.equal(compiled(X), X * value)
    assert len(compilations(compiled)) == 2


def test_across_a_graph_break() -> None:
    def program(x: Tensor, s: float) -> tuple[Tensor, float]:
        y, twice = x * s, s * 2
        fusewright.graph_break()
        return y + twice, twice

    compiled = fusewright.compile(program)
    for value in (0.5, 0.25, 3.0, 7.5):
        torch.testing.assert_close(compiled(X, value), program(X, value))
    assert len(compilations(compiled)) <= 4


@pytest.mark.parametrize("backend", ["aot_eager", "fusewright"])
def test_gradients(backend: str) -> None:
    def loss(weight: Tensor, s: float) -> Tensor:
        hidden = (X @ weight * s).tanh().add(1.0, alpha=s) * (2 * s + 1)
        return hidden.square().sum() * s

    compiled = fusewright.compile(loss, backend=backend, fullgraph=True, options={"strict": True})
    weight = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    for value in (0.5, 0.25, 3.0, -1.5, 1 / 3):
        (expected,) = torch.autograd.grad(loss(weight, value), weight)
        (found,) = torch.autograd.grad(compiled(weight, value), weight)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert len(compilations(compiled)) == 2


@pytest.mark.parametrize("fused_lists", [False, True], ids=["one by one", "lists"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_a_learning_rate_that_a_scheduler_changes(kind: Any, fused_lists: bool) -> None:
    torch.manual_seed(0)
    models = [nn.Linear(4, 3), nn.Linear(4, 3)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [
        kind(
            [
                {"params": [model.weight], "lr": 0.1},
                {"params": [model.bias], "lr": 0.01, "weight_decay": 0.5},
            ],
            foreach=fused_lists,
        )
        for model in models
    ]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in optimizers]
    step = fusewright.compile(
        lambda: optimizers[1].step(), fullgraph=True, options={"strict": True}
    )
    for _ in range(6):
        x = torch.randn(5, 4)
        for model in models:
            model.zero_grad()
            model(x).square().sum().backward()
        optimizers[0].step()
        step()
        for schedule in schedules:
            schedule.step()
        for expected, found in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(compilations(step)) == 2


@pytest.mark.parametrize("fused_lists", [False, True], ids=["one by one", "lists"])
def test_the_betas_of_adam(fused_lists: bool) -> None:
    """A tuple of floats."""
    torch.manual_seed(0)
    parameters = [torch.randn(4, 3).requires_grad_() for _ in range(2)]
    parameters[1].data.copy_(parameters[0].data)
    optimizers = [torch.optim.AdamW([each], foreach=fused_lists) for each in parameters]
    step = fusewright.compile(
        lambda: optimizers[1].step(), fullgraph=True, options={"strict": True}
    )
    for betas in ((0.9, 0.99), (0.8, 0.98), (0.7, 0.97), (0.85, 0.9)):
        for parameter, optimizer in zip(parameters, optimizers, strict=True):
            parameter.grad = parameters[0].detach().sin()
            optimizer.param_groups[0]["betas"] = betas
        optimizers[0].step()
        step()
        torch.testing.assert_close(parameters[1], parameters[0])
    assert len(compilations(step)) == 2


def test_dynamic_from_the_start() -> None:
    assert calls(lambda x, s: x * s, (0.5, 0.25, 3.0), dynamic=True) == 1


def test_never_dynamic() -> None:
    assert calls(lambda x, s: x * s, (0.5, 0.25, 3.0), dynamic=False) == 3


INTEGERS: dict[str, Program] = {
    "a factor": lambda x, n: x * n + n,
    "of integers": lambda x, n: x.to(torch.int64) * n - n,
    "alpha": lambda x, n: x.add(x, alpha=n),
    "a bound": lambda x, n: x.clamp(max=n),
    "a power": lambda x, n: x.abs() ** n,
    "a divisor": lambda x, n: x / n + n / x.exp() + x // n,
    "an operand of a library call": lambda x, n: torch.addmm(x[:, :5], x, x.t(), beta=n),
    "a float": lambda x, n: x * (n / 4) + float(n),
}


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_that_varies_is_compiled_for_once(name: str, backend: str) -> None:
    assert calls(INTEGERS[name], (3, 4, 7, 11), backend) == 2


@pytest.mark.parametrize(
    "power", [lambda x, n: x**n, lambda x, n: x.abs().pow(n // 2), lambda x, n: n**x]
)
def test_gradients_of_powers_of_integers(power: Program) -> None:
    compiled = fusewright.compile(power, fullgraph=True, dynamic=True, options={"strict": True})
    x = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    for n in (5, 3, 2, 4, 0, 1, -2):
        (expected,) = torch.autograd.grad(power(x, n).sum(), x)
        (found,) = torch.autograd.grad(compiled(x, n).sum(), x)
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13, equal_nan=True)


def test_negative_integers() -> None:
    assert calls(lambda x, n: x * n + n // 2 + n % 3, (-3, -4, -9, -2, 5, 6, 7)) == 3
