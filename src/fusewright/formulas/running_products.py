"""The gradient of a running product, as eager computes it.

Torch before 2.13 takes another formula for tensors that are traced: some operators for each element
of a row, in which a NaN does not reach its own gradient, and one behind a zero reaches all others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.formulas.helpers import aten
from fusewright.formulas.table import When, formula
from fusewright.torch_version import version_of

TRACES_ANOTHER = version_of(torch.__version__) < (2, 13)
"""Whether torch does."""


@formula(torch.cumprod, torch.Tensor.cumprod, when=When.ANY_CALL)
def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None, out: Any = None) -> Any:
    """`torch.cumprod` where a gradient is asked for."""
    is_differentiated = torch.is_grad_enabled() and x.requires_grad
    if not (TRACES_ANOTHER and is_differentiated) or out is not None:
        return NotImplemented
    x = x if dtype is None else x.to(dtype)
    if not x.is_floating_point() or x.dim() == 0:
        return NotImplemented
    return torch_compat.autograd.apply_function(RunningProduct, x, dim)


class RunningProduct(torch.autograd.Function):
    """`torch.cumprod` with the gradient of one pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        product = aten.cumprod.default(x, dim)
        ctx.save_for_backward(x, product)
        ctx.dim = dim
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, product = ctx.saved_tensors
        if torch.is_grad_enabled():  # what one pass computes has not the second derivative
            return aten.cumprod_backward.default(gradient, x, ctx.dim, product), None
        return gradient_of_product(gradient, x, ctx.dim, product), None


def gradient_of_product(gradient: Tensor, x: Tensor, dim: int, product: Tensor) -> Tensor:
    """Before the first zero of a row each element has the sum of `gradient * product` from itself
    on, divided by itself. The zero has the product of those before it, times the sum of gradients
    from it on, each times the product of what is between. Elements behind it have none.
    """
    if x.shape[dim] < 2:
        return gradient
    is_zero = x == 0
    zeros = is_zero.cumsum(dim)
    before, behind_one = zeros == 0, zeros == 1
    is_first = is_zero & behind_one
    later = torch.where(before, gradient * product, 0).flip(dim).cumsum(dim).flip(dim)
    between = torch.where(behind_one & ~is_first, x, 1).cumprod(dim)
    behind = (torch.where(behind_one, gradient, 0) * between).sum(dim, keepdim=True)
    place = before.sum(dim, keepdim=True)
    ahead = product.gather(dim, (place - 1).clamp(min=0))
    at_first = behind * torch.where(place == 0, 1, ahead)
    return torch.where(is_first, at_first, torch.where(before, later / x, 0))
