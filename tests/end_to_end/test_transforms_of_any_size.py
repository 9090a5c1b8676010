"""Transforms of torch.func and checkpointed regions where sizes vary: two compiles at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import fusewright
from fusewright import compilations

W = torch.randn(4, 4)
LINEAR = nn.Linear(4, 4)
BLOCK = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Dropout(0.5))


def per_sample_gradients(x: Tensor) -> Any:
    def loss(parameters: Any, row: Tensor) -> Tensor:
        return functional_call(LINEAR, parameters, (row,)).square().sum()

    parameters = {name: one.detach() for name, one in LINEAR.named_parameters()}
    return vmap(grad_and_value(loss), in_dims=(None, 0))(parameters, x)


def pullback(x: Tensor) -> Any:
    result, function = vjp(lambda y: (y @ W).tanh(), x)
    return result, function(result.cos())


TRANSFORMS: dict[str, Callable[[Tensor], Any]] = {
    "rows": lambda x: vmap(lambda row: (row @ W).sin().sum())(x),
    "columns": lambda x: vmap(lambda c, d: c * d, in_dims=(1, None), out_dims=1)(x, x[:, 0]),
    "rows of rows": lambda x: vmap(lambda r: vmap(torch.mul, in_dims=(0, None))(r, r))(x),
    "chunks": lambda x: vmap(lambda row: row @ W, chunk_size=16)(x),
    "per sample": per_sample_gradients,
    "grad": lambda x: grad(lambda y: (y @ W).sin().sum())(x),
    "jacrev": lambda x: jacrev(lambda y: (y @ W).sin().sum(0))(x),
    "jacfwd": lambda x: jacfwd(lambda y: (y @ W).sin().sum(0))(x),
    "hessian": lambda x: hessian(lambda y: y.sin().sum() ** 2)(x[:, 0]),
    "jvp": lambda x: jvp(lambda y: (y @ W).tanh(), (x,), (x.cos(),)),
    "vjp": pullback,
    "draws of each": lambda x: vmap(lambda r: r + torch.rand(4), randomness="different")(x),
    "a draw of all": lambda x: vmap(lambda r: r * torch.rand(4), randomness="same")(x),
    "dropout of each": lambda x: vmap(nn.functional.dropout, randomness="different")(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    program = TRANSFORMS[name]
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    for rows in (3, 5, 4, 7):
        x = torch.randn(rows, 4)
        torch.manual_seed(0)
        expected = program(x), torch.rand(2)
        torch.manual_seed(0)
        torch.testing.assert_close((compiled(x), torch.rand(2)), expected, rtol=1e-4, atol=1e-5)
    assert len(compilations(compiled)) == 2


def with_keywords(x: Tensor) -> Tensor:
    def scaled(a: Tensor, *, scale: float, shift: Tensor) -> Tensor:
        return (a @ W).sin() * scale + shift

    return checkpoint(scaled, x, scale=2.0, shift=x.cos(), use_reentrant=False)


def nested(x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        return checkpoint(BLOCK, y.sin(), use_reentrant=False)

    return checkpoint(lambda y: inner(y) * 2 + y, x, use_reentrant=False)


def in_a_row(x: Tensor) -> Tensor:
    for _ in range(3):
        x = checkpoint(lambda y: (y @ W).relu() + y.shape[0], x, use_reentrant=False)
    return x


def reentrant(x: Tensor) -> Tensor:
    return checkpoint(BLOCK, x * 2, use_reentrant=True) + 1


CHECKPOINTED: list[Callable[[Tensor], Tensor]] = [
    lambda x: checkpoint(BLOCK, x, use_reentrant=False),
    lambda x: checkpoint_sequential(BLOCK, 2, x, use_reentrant=False),
    with_keywords,
    nested,
    in_a_row,
]


def trained(program: Callable[[Tensor], Tensor], x: Tensor) -> list[Any]:
    """The result, the gradients, and what is drawn next."""
    torch.manual_seed(0)
    x = x.clone().requires_grad_()
    for one in BLOCK.parameters():
        one.grad = None
    result = program(x)
    result.square().sum().backward()
    return [result, x.grad, *(one.grad for one in BLOCK.parameters()), torch.rand(2)]


@pytest.mark.parametrize("program", CHECKPOINTED)
def test_checkpointed_regions(program: Any) -> None:
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    for rows in (3, 5, 4, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(trained(compiled, x), trained(program, x), rtol=1e-4, atol=1e-5)
    assert len(compilations(compiled)) == 2


def test_a_reentrant_region_stays_a_call_between_graphs() -> None:
    compiled = fusewright.compile(reentrant)
    for rows in (3, 5, 4, 7):
        x = torch.randn(rows, 4)
        found, expected = trained(compiled, x), trained(reentrant, x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert ", 1 break" in str(fusewright.explain(compiled))
