"""Autograd functions that are given functions, as libraries of kernels write them: one graph where
the forward calls the function and keeps nothing of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusewright

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.rand(4, 4, generator=torch.Generator().manual_seed(1))


class Covariance(torch.autograd.Function):
    """Computes with a function of the caller's, whose derivative it knows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float, distance: Callable[..., Tensor]) -> Tensor:
        found = torch.exp(-scale * distance(x))
        ctx.save_for_backward(x, found)
        ctx.scale = scale
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, found = ctx.saved_tensors
        return -2 * ctx.scale * x * found * gradient, None, None


class Twice(torch.autograd.Function):
    """Calls two functions, one of them twice and by a name, and returns two results."""

    @staticmethod
    def forward(
        ctx: Any, first: Callable[..., Any], x: Tensor, second: Callable[..., Any]
    ) -> tuple[Tensor, Tensor]:
        one, other = first(x, power=2)
        return second(one), second(other) + 1

    @staticmethod
    def backward(ctx: Any, one: Tensor, other: Tensor) -> Any:
        return None, (one * 3 + other).expand(3, 4), None


class Keeping(torch.autograd.Function):
    """Calls the function again in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[..., Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.function = function
        return function(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            (found,) = torch.autograd.grad(ctx.function(x), x, gradient)
        return found, None


class Unused(torch.autograd.Function):
    """Does not call what it is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[..., Tensor]) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * 2, None


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(WEIGHT.clone())

    def distance(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return x.square() * scale

    def forward(self, x: Tensor) -> Tensor:
        hidden = x @ self.weight
        return Covariance.apply(hidden, 0.5, lambda given: self.distance(given))


def given_a_lambda(x: Tensor) -> Tensor:
    return Covariance.apply(x, 0.5, lambda given: given.square())


def given_a_closure(x: Tensor) -> Tensor:
    factor = x.detach().abs().sum()

    def distance(given: Tensor) -> Tensor:
        return given.square() + factor + WEIGHT[:3]

    return Covariance.apply(x * 2, 0.1, distance)


LAYER = Layer()


def given_a_method(x: Tensor) -> Tensor:
    return Covariance.apply(x, 0.5, LAYER.distance)


def given_a_partial(x: Tensor) -> Tensor:
    return Covariance.apply(x, 0.5, functools.partial(LAYER.distance, scale=1.0))


def powers(x: Tensor, power: int) -> tuple[Tensor, Tensor]:
    return x**power, x.sum(0)


def given_two(x: Tensor) -> Tensor:
    one, other = Twice.apply(powers, x * 2, lambda given: given.sum())
    return one + other.cos()


def kept(x: Tensor) -> Tensor:
    return Keeping.apply(x, lambda given: given.sin())


def not_called(x: Tensor) -> Tensor:
    return Unused.apply(x, lambda given: given.sin())


WHOLE = [given_a_lambda, given_a_closure, given_a_method, given_a_partial, given_two, LAYER]


def results(compute: Callable[[Tensor], Tensor]) -> list[Any]:
    x = X.clone().requires_grad_(True)
    LAYER.weight.grad = None
    result = compute(x)
    result.square().sum().backward()
    return [result.detach(), x.grad, LAYER.weight.grad]


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("program", WHOLE, ids=range(len(WHOLE)))
def test_one_graph(program: Any, backend: str) -> None:
    compiled = fusewright.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(results(compiled), results(program))
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), program(X))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [kept, not_called], ids=lambda each: each.__name__)
def test_what_breaks_the_graph_does_what_it_does(program: Any) -> None:
    with pytest.raises(fusewright.errors.Unsupported):
        results(fusewright.compile(program, fullgraph=True))
    compiled = fusewright.compile(program)
    for _ in range(2):
        torch.testing.assert_close(results(compiled), results(program))


def test_what_a_function_reads_is_guarded() -> None:
    factors = [2.0]

    def program(x: Tensor) -> Tensor:
        return Covariance.apply(x, 0.5, lambda given: given.square() * factors[0])

    compiled = fusewright.compile(program, fullgraph=True)
    for factor in (2.0, 3.0, 2.0):
        factors[0] = factor
        torch.testing.assert_close(results(compiled), results(program))
