"""Programs that are compiled, not run eagerly: unusual sizes, operators that torch treats apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import fusewright

LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits")


def compile_strictly(function: Callable[..., Any]) -> Callable[..., Any]:
    return fusewright.compile(function, options={"strict": True})


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_no_elements(name: str, reduction: str) -> None:
    loss = getattr(F, name)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        result = compiled(x, torch.ones(7, 0, 3))
        (gradient,) = torch.autograd.grad(result.sum(), x)
        return result.detach(), gradient

    def function(x: Tensor, y: Tensor) -> Tensor:
        return loss(x, y, reduction=reduction)

    compiled = function
    expected = step(torch.randn(7, 0, 3))
    compiled = compile_strictly(function)
    torch.testing.assert_close(step(torch.randn(7, 0, 3)), expected, equal_nan=True)


def test_result_of_several_that_is_viewed_in_place() -> None:
    def largest(x: Tensor) -> Tensor:
        values = torch.cummax(x, 2).values
        return values.unsqueeze_(0)

    x = torch.randn(4, 5, 5)
    torch.testing.assert_close(compile_strictly(largest)(x), largest(x))


def test_broadcast_of_no_elements() -> None:
    def middle(x: Tensor) -> tuple[Tensor, Tensor]:
        threes = torch.full_like(x, 3)
        return torch.all(threes, dim=(-2, -1)), threes.median() + threes

    x = torch.randn(3)[3:].view(6, 0)
    torch.testing.assert_close(compile_strictly(middle)(x), middle(x), equal_nan=True)


def test_an_operator_without_derivative_raises_in_backward() -> None:
    def quotient(x: Tensor) -> Tensor:
        return torch.floor_divide(x, 2) * 3

    x = torch.randn(5, requires_grad=True)
    result = fusewright.compile(quotient)(x)
    torch.testing.assert_close(result, quotient(x))
    with pytest.raises(RuntimeError, match="derivative for aten::floor_divide is not implemented"):
        result.sum().backward()


@pytest.mark.parametrize("index", [1, -2])
@pytest.mark.parametrize("read", [lambda x, i: x[i], lambda x, i: F.embedding(i, x)])
def test_an_index_into_one_row_is_checked(read: Any, index: int) -> None:
    x, place = torch.ones(1, 4), torch.tensor([index])
    compiled = fusewright.compile(lambda x, i: read(x, i))
    constant = fusewright.compile(lambda x: read(x, torch.tensor([index])))
    for call in (lambda: read(x, place), lambda: compiled(x, place), lambda: constant(x)):
        with pytest.raises(IndexError):
            call()


def test_an_input_with_a_history_takes_the_sizes_that_it_is_given() -> None:
    def turned(x: Tensor) -> Tensor:
        x.transpose_(0, 1)
        return x * 2

    x = torch.randn(2, 3, requires_grad=True) * 1
    expected = x.detach().t() * 2
    result = fusewright.compile(turned)(x)
    torch.testing.assert_close(result.detach(), expected)
    assert x.shape == (3, 2)
