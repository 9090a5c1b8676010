"""`torch.autograd.grad` inside of compiled functions, also of gradients, and of tensors made leaves
there: one graph, whose results and gradients are eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusewright

torch.manual_seed(0)
NET = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
X, V = torch.randn(5), torch.randn(5)
POINTS = torch.rand(6, 2)


def hessian_vector_product(x: Tensor, v: Tensor) -> Tensor:
    x = x.detach().requires_grad_(True)
    (slope,) = torch.autograd.grad((x.sin() * x.roll(1).exp()).sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(slope @ v, x)
    return found


def differential_equation(points: Tensor) -> Tensor:
    """The residual of one that has second derivatives, to be minimised over the weights."""
    x, t = (column.clone().requires_grad_(True) for column in points.unbind(1))
    u = NET(torch.stack([x, t], 1)).squeeze(1)
    one = torch.ones_like(u)
    by_t, by_x = torch.autograd.grad(u, (t, x), one, create_graph=True)
    (by_xx,) = torch.autograd.grad(by_x, x, one, create_graph=True)
    return (by_t + u * by_x - 0.01 * by_xx).square().mean()


def gradient_penalty(real: Tensor, made: Tensor) -> Tensor:
    between = torch.lerp(real, made, torch.rand(len(real), 1)).requires_grad_(True)
    score = NET(between)
    (slope,) = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True)
    return NET(made).mean() - NET(real).mean() + (slope.norm(dim=1) - 1).square().mean()


def forces(positions: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        positions = positions.detach().requires_grad_(True)
        energy = NET(positions).square().sum()
        (slope,) = torch.autograd.grad(energy, positions)
    return energy.detach(), -slope


def energy_and_forces(positions: Tensor) -> tuple[Tensor, Tensor]:
    """The energy keeps its history, which the engine has been through already."""
    positions = positions.detach().requires_grad_(True)
    energy = NET(positions).square().sum()
    return energy * 2, -torch.autograd.grad(energy, positions, retain_graph=True)[0]


def unused(x: Tensor) -> tuple[Tensor | None, ...]:
    y, z = x.detach().requires_grad_(True), torch.ones(2, requires_grad=True)
    return torch.autograd.grad(y.sum(), (y, z), allow_unused=True)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "a Hessian times a vector": (hessian_vector_product, (X, V)),
    "a differential equation": (differential_equation, (POINTS,)),
    "a gradient penalty": (gradient_penalty, (POINTS, POINTS.flip(0))),
    "forces": (forces, (POINTS,)),
    "an energy and forces": (energy_and_forces, (POINTS,)),
    "an input that is not used": (unused, (X,)),
}


def with_gradients(function: Callable[..., Any], arguments: tuple[Tensor, ...]) -> list[Any]:
    """What a call returns, and the gradients of its results by the weights."""
    torch.manual_seed(0)
    results = function(*arguments)
    flat = [results] if isinstance(results, Tensor) else list(results)
    tracked = [one.sum() for one in flat if one is not None and one.requires_grad]
    if not tracked:
        return flat
    total = torch.stack(tracked).sum()
    return [*flat, *torch.autograd.grad(total, list(NET.parameters()), allow_unused=True)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fusewright"])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(name: str, backend: str) -> None:
    function, arguments = PROGRAMS[name]
    compiled = fusewright.compile(function, backend=backend, options={"strict": True})
    for _ in range(2):
        wanted = with_gradients(function, arguments)
        torch.testing.assert_close(with_gradients(compiled, arguments), wanted)
    assert len(fusewright.compilations(compiled)) == 1


def test_without_gradients_around() -> None:
    compiled = fusewright.compile(forces, options={"strict": True})
    with torch.no_grad():
        torch.testing.assert_close(compiled(POINTS), forces(POINTS))


@pytest.mark.dynamic(None)
def test_points_of_any_number() -> None:
    compiled = fusewright.compile(differential_equation, options={"strict": True})
    for count in (4, 6, 9):
        points = (torch.rand(count, 2),)
        wanted = with_gradients(differential_equation, points)
        torch.testing.assert_close(with_gradients(compiled, points), wanted)
    assert len(fusewright.compilations(compiled)) == 2


def test_a_leaf_that_leaves_is_made_for_real() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = (x * 2).detach().requires_grad_(True)
        return leaf, leaf * 3

    explained = fusewright.explain(f, backend="eager")
    leaf, result = explained(X).result
    result.sum().backward()
    assert leaf.is_leaf
    torch.testing.assert_close(leaf.grad, torch.full_like(X, 3.0))
    assert [one.reason for one in explained.so_far.breaks] == ["grad-required"]


def test_a_history_from_outside_breaks_the_graph() -> None:
    """The engine goes on in it, where a graph cannot see it."""

    def f(loss: Tensor, weight: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(loss * 2, weight)
        return slope + 1

    weight = X.clone().requires_grad_()
    found = fusewright.explain(f, backend="eager")((weight * V).sum(), weight)
    torch.testing.assert_close(found.result, 2 * V + 1)
    assert [one.reason for one in found.breaks] == ["grad-required"]


def test_a_hook_of_an_input_runs() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.autograd.grad(x.square().sum(), x)[0]

    x = X.clone().requires_grad_()
    x.register_hook(lambda slope: slope * 10)
    torch.testing.assert_close(fusewright.compile(f)(x), f(x))
