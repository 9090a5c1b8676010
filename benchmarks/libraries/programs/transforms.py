"""torch.func: transforms of functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import perceptron


@program()
def gradients_of_each_sample(compile: Compile) -> Run:
    """Per-sample gradients of a perceptron by vmap of grad."""
    module = perceptron(16, 32, 1)
    parameters = {name: one.detach() for name, one in module.named_parameters()}

    def loss(parameters: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (functional_call(module, parameters, (x[None],)) - y).square().mean()

    compiled = compile(vmap(grad(loss), in_dims=(None, 0, 0)))
    x, y = torch.randn(32, 16), torch.randn(32)
    return lambda: compiled(parameters, x, y)


@program()
def ensemble_by_vmap(compile: Compile) -> Run:
    """Members of an ensemble in one call of stacked parameters."""
    members = [perceptron(16, 32, 4) for _ in range(5)]
    parameters, buffers = stack_module_state(members)
    parameters = {name: one.detach() for name, one in parameters.items()}
    base = members[0]

    @compile
    def predict(parameters: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def one(p: Any, b: Any) -> torch.Tensor:
            return functional_call(base, (p, b), (x,))

        out = vmap(one)(parameters, buffers)
        return out.mean(0), out.var(0)

    x = torch.randn(32, 16)
    return lambda: predict(parameters, x)


@program()
def hessian_of_a_function(compile: Compile) -> Run:
    """A Hessian and Newton's step."""

    def energy(x: torch.Tensor) -> torch.Tensor:
        return (x[1:] - x[:-1] ** 2).square().sum() + (1 - x).square().sum()

    @compile
    def step(x: torch.Tensor) -> torch.Tensor:
        return x - torch.linalg.solve(hessian(energy)(x), grad(energy)(x))

    x = torch.rand(8) + 0.5
    return lambda: step(x)


@program()
def jacobians_both_ways(compile: Compile) -> Run:
    """jacrev and jacfwd of a layer."""
    layer = nn.Linear(8, 8)

    @compile
    def compute(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        function = lambda x: layer(x).tanh()  # noqa: E731
        return jacrev(function)(x), jacfwd(function)(x)

    x = torch.randn(8)

    def run() -> Any:
        return [one.detach() for one in compute(x)]

    return run


@program()
def divergence_by_forward_mode(compile: Compile) -> Run:
    """A divergence of a field by jvp, as score models need."""
    module = perceptron(4, 32, 4)

    @compile
    def divergence(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(x.shape[0])
        for number in range(4):
            tangent = torch.zeros_like(x)
            tangent[:, number] = 1
            total = total + jvp(module, (x,), (tangent,))[1][:, number]
        return total

    x = torch.randn(32, 4)
    return lambda: divergence(x).detach()


@program()
def physics_informed_loss(compile: Compile) -> Run:
    """A heat equation's residual by nested gradients, trained."""
    from benchmarks.libraries.programs.common import gradients

    module = perceptron(2, 32, 1, activation=nn.Tanh)

    def u(p: torch.Tensor) -> torch.Tensor:
        return module(p).squeeze()

    @compile
    def loss(points: torch.Tensor) -> torch.Tensor:
        def residual(p: torch.Tensor) -> torch.Tensor:
            first = grad(u)(p)
            second = grad(lambda q: grad(u)(q)[0])(p)[0]
            return first[1] - 0.1 * second

        return vmap(residual)(points).square().mean()

    points = torch.rand(16, 2)
    return lambda: gradients(module, loss(points))


@program()
def product_with_a_vector(compile: Compile) -> Run:
    """vjp with auxiliary output, and grad_and_value."""

    @compile
    def compute(x: torch.Tensor, v: torch.Tensor) -> Any:
        def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = x.sin()
            return hidden.cumsum(-1), hidden

        out, pull, aux = vjp(function, x, has_aux=True)
        gradient, value = grad_and_value(lambda x: x.square().sum())(x)
        return out, pull(v)[0], aux, gradient, value

    x, v = torch.randn(32, 16), torch.randn(32, 16)
    return lambda: compute(x, v)


@program()
def linearised_function(compile: Compile) -> Run:
    """linearize, and its linear map called with two tangents."""

    @compile
    def compute(x: torch.Tensor, t: torch.Tensor) -> Any:
        out, linear = linearize(lambda x: x.exp().sum(-1), x)
        return out, linear(t), linear(2 * t)

    x, t = torch.randn(16, 8), torch.randn(16, 8)
    return lambda: compute(x, t)
