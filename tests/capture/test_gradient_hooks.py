"""Hooks on gradients of tensors that a graph computes: one graph where the hook only computes, a
graph break where it reads variables or where the tensor leaves the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright

SCALE = 3.0
X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


def doubled(x: Tensor) -> Tensor:
    hidden = x.sin()
    hidden.register_hook(lambda gradient: gradient * 2)
    return (hidden * 3).sum()


def clipped(x: Tensor) -> Tensor:
    hidden = x.exp()
    used_before = hidden.square()
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: torch.clamp(gradient, -0.5, 0.5))
    return (used_before + hidden).sum()


def two_hooks(x: Tensor) -> Tensor:
    hidden = x.tanh()
    hidden.register_hook(lambda gradient: gradient + 1)
    hidden.register_hook(lambda gradient: gradient * 2)
    return hidden.cos().sum()


def one_that_looks(x: Tensor) -> Tensor:
    hidden = x.tanh()
    hidden.register_hook(lambda gradient: None)
    return hidden.cos().sum()


def written_later(x: Tensor) -> Tensor:
    hidden = x * 2
    hidden.register_hook(lambda gradient: gradient.sign())
    hidden.mul_(x)
    return hidden.cos().sum()


def gradient_inside(x: Tensor) -> Tensor:
    x = x.detach().requires_grad_(True)
    hidden = x.sin()
    hidden.register_hook(lambda gradient: gradient * 2)
    return torch.autograd.grad(hidden.exp().sum(), x)[0]


WHOLE = [doubled, clipped, two_hooks, one_that_looks, written_later, gradient_inside]


def by_a_variable(x: Tensor) -> Tensor:
    hidden = x.sin()
    hidden.register_hook(lambda gradient: gradient * SCALE)
    return (hidden * 3).sum()


def by_a_local(x: Tensor) -> Tensor:
    factor = 2
    hidden = x.sin()
    hidden.register_hook(lambda gradient: gradient * factor)
    factor = 5
    return (hidden * 3).sum() * factor


def returned(x: Tensor) -> Tensor:
    hidden = x.sin()
    hidden.register_hook(lambda gradient: gradient * 2)
    return hidden


def handle_removed(x: Tensor) -> Tensor:
    hidden = x.sin()
    handle = hidden.register_hook(lambda gradient: gradient * 2)
    handle.remove()
    return hidden.sum()


def written_to(x: Tensor) -> Tensor:
    hidden = x.sin()

    def write(gradient: Tensor) -> None:
        gradient.mul_(2)

    hidden.register_hook(write)
    return hidden.cos().sum(0)


def that_raises(x: Tensor) -> Tensor:
    hidden = x.sin()
    hidden.register_hook(lambda gradient: gradient + torch.ones(7))
    return hidden.sum()


def on_an_input(x: Tensor) -> Tensor:
    x.register_hook(lambda gradient: gradient * 2)
    return x.sin().sum()


BROKEN = [by_a_variable, by_a_local, returned, handle_removed, written_to, on_an_input]


def gradients(program: Callable[[Tensor], Tensor], backend: str | None = None) -> list[Any]:
    function = program if backend is None else fusewright.compile(program, backend=backend)
    x = X.clone().requires_grad_(True)
    result = function(x)
    if result.requires_grad:
        result.sum().backward()
    return [result.detach(), x.grad]


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("program", WHOLE, ids=lambda each: each.__name__)
def test_one_graph(program: Callable[[Tensor], Tensor], backend: str) -> None:
    expected = gradients(program)
    compiled = fusewright.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(gradients(compiled), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", BROKEN, ids=lambda each: each.__name__)
def test_hooks_that_break_the_graph_do_what_they_do(program: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(fusewright.errors.Unsupported, match="register_hook"):
        gradients(fusewright.compile(program, fullgraph=True))
    torch.testing.assert_close(gradients(program, "fusewright"), gradients(program))


@pytest.mark.filterwarnings("ignore")
def test_a_hook_that_raises_does_so_in_backward() -> None:
    compiled = fusewright.compile(that_raises)
    result = compiled(X.clone().requires_grad_(True))
    with pytest.raises(RuntimeError, match="size of tensor"):
        result.backward()


@pytest.mark.filterwarnings("ignore")
def test_the_gradient_of_a_tensor_with_a_hook() -> None:
    def outer(compute: Callable[[Tensor], Tensor]) -> list[Tensor]:
        x = X.clone().requires_grad_(True)
        hidden = compute(x)
        return list(torch.autograd.grad(hidden.exp().sum(), [hidden, x]))

    torch.testing.assert_close(outer(fusewright.compile(returned)), outer(returned))
