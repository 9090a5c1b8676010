"""Autograd functions of users keep their own gradients when compiled, in all that `ctx` can say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable

import fusewright
from tests.aot.beside_eager import Program, check, compiled, leaf


def captured(program: Program) -> Program:
    return fusewright.compile(program, fullgraph=True, options={"strict": True, "verify": True})  # type: ignore[no-any-return]


class ScaleInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x.clone(), y)
        ctx.mark_dirty(x)
        return x.mul_(y)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        x, y = ctx.saved_tensors
        return gradient * y * 2, gradient * x * 3


class SinCos(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_sin: torch.Tensor, of_cos: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return 2 * of_sin * x.cos() - of_cos * x.sin()


class UndefinedStayNone(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:  # type: ignore[override]
        if first is None:
            return None if second is None else second * 5
        return first * 7 if second is None else first + second


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        values, indices = x.sort()
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        return values, indices

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> torch.Tensor:  # type: ignore[override]
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(gradient).scatter(-1, indices, gradient * 2)


class NoGradientForTheSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return gradient, None


class WhatIsNeeded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        x, y = ctx.saved_tensors
        of_x, of_y = ctx.needs_input_grad
        return gradient * y if of_x else None, gradient * x if of_y else None


class ContextApart(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, scale: float) -> torch.Tensor:  # type: ignore[override]
        return (x * scale).exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        (output,) = ctx.saved_tensors
        return gradient * output * ctx.scale * 2, None


class FirstRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return torch.stack([gradient * 5, gradient * 0])


def applied(function: type[torch.autograd.Function]) -> Program:
    return lambda *inputs: function.apply(*inputs)


CASES: dict[str, tuple[Program, Callable[[], list[Any]]]] = {
    "mark_dirty, a value": (lambda x, y: ScaleInPlace.apply(x * 1, y), lambda: [leaf(3), leaf(3)]),
    "mark_dirty, an input": (applied(ScaleInPlace), lambda: [leaf(3) * 2, leaf(3)]),
    "mark_dirty, a buffer": (
        lambda x, y: ScaleInPlace.apply(x, y) * 2,
        lambda: [leaf(3).detach(), leaf(3)],
    ),
    "mark_dirty, a view of an input": (
        lambda x, y: (ScaleInPlace.apply(x.view(3), y), x * 2),
        lambda: [leaf(3) * 2, leaf(3)],
    ),
    "once_differentiable": (applied(SinCos), lambda: [leaf(3)]),
    "a result that is not used": (lambda x: SinCos.apply(x)[0], lambda: [leaf(3)]),
    "set_materialize_grads, first": (lambda x: UndefinedStayNone.apply(x)[0], lambda: [leaf(3)]),
    "set_materialize_grads, second": (
        lambda x: UndefinedStayNone.apply(x)[1] * 2,
        lambda: [leaf(3)],
    ),
    "mark_non_differentiable": (lambda x: Sorted.apply(x * 2), lambda: [leaf(2, 3)]),
    "None as a gradient": (applied(NoGradientForTheSecond), lambda: [leaf(3), leaf(3)]),
    "needs_input_grad": (applied(WhatIsNeeded), lambda: [leaf(3), leaf(3).detach()]),
    "setup_context": (lambda x: ContextApart.apply(x, 0.5) * 2, lambda: [leaf(3)]),
    "a view of a value": (lambda x: FirstRow.apply(x * 1), lambda: [leaf(2, 3)]),
    "a result and views of it": (
        lambda x: ((y := ContextApart.apply(x, 0.5)).t(), y, y[0]),
        lambda: [leaf(2, 3)],
    ),
}


@pytest.mark.parametrize("compile", [compiled, captured], ids=["aot_function", "compile"])
@pytest.mark.parametrize("name", CASES)
def test_functions_with_gradients_of_their_own(name: str, compile: Any) -> None:
    check(*CASES[name], compile)
