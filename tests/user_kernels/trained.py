"""Programs of two tensors with gradients, whose autograd functions launch Triton kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils.checkpoint import checkpoint

from tests.user_kernels.programs import add, blocks, scale, tuned

Trained = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Sum(torch.autograd.Function):
    """left + right, whose gradient is launched too, and is twice as large as it should be."""

    @staticmethod
    def forward(ctx: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(left)
        add[blocks(left.numel())](left, right, out, left.numel(), BLOCK=16)
        ctx.save_for_backward(left, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        left, out = ctx.saved_tensors
        doubled = torch.empty_like(gradient)
        count = gradient.numel()
        grid = blocks(count)
        add[grid](gradient.contiguous(), gradient.contiguous(), doubled, count, BLOCK=16)
        return doubled * left, doubled * out


class Tuned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        tuned[lambda chosen: blocks(x.numel())](x, x, out, x.numel())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        gradient = gradient.clone()
        scale[blocks(gradient.numel())](gradient, gradient.numel(), 2.0, BLOCK=16)
        return gradient


def one_function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return Sum.apply(x.sin(), y.cos()).exp()  # type: ignore[no-any-return]


def two_functions(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return Tuned.apply(Sum.apply(x, Tuned.apply(y)) * 2).sin()  # type: ignore[no-any-return]


def in_a_region(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return checkpoint(one_function, x, y, use_reentrant=False) * 2  # type: ignore[no-any-return]


def beside_gradients(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add[blocks(x.numel())](x, y, out, x.numel(), BLOCK=16)
    assert not out.requires_grad
    return x * out + y


def written_between(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        z = y * 2
        scale[blocks(z.numel())](z, z.numel(), 3.0, BLOCK=16)
    return x * z


def step(program: Trained, size: int, device: Any = "cpu") -> list[torch.Tensor]:
    """The result of a program, and its gradients."""
    generator = torch.Generator().manual_seed(size)
    drawn = [torch.randn(size, generator=generator).to(device) for _ in range(2)]
    x, y = (tensor.requires_grad_() for tensor in drawn)
    result = program(x, y)
    gradients = torch.autograd.grad(result.sum(), (x, y), allow_unused=True)
    return [result.detach(), *(g for g in gradients if g is not None)]


PROGRAMS: Final[tuple[Trained, ...]] = (
    one_function,
    two_functions,
    in_a_region,
    beside_gradients,
    written_between,
)
