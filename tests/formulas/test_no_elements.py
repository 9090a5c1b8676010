"""Gradients of norms and losses of elements that a mask selects: of all, of two, and of none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import fusewright

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape),
    "rms_norm": lambda x: F.rms_norm(x, x.shape),
    "group_norm": lambda x: F.group_norm(x.view(-1, 1), 1),
    "mse_loss": lambda x: F.mse_loss(x, x * x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x * x),
    "huber_loss": lambda x: F.huber_loss(x, x * x),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), x.detach().sigmoid()),
    "with_logits": lambda x: F.binary_cross_entropy_with_logits(x, x.detach().sigmoid()),
    "mean": lambda x: x.mean() * 2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_what_a_mask_selects(name: str) -> None:
    def function(x: Tensor) -> Tensor:
        return FUNCTIONS[name](x[x > 0]).cos()

    compiled = fusewright.compile(function, options={"strict": True})
    for shift in (3.0, -0.75, -9.0):
        results = []
        for call in (function, compiled):
            x = (torch.arange(10.0) / 10 + shift).requires_grad_()
            result = call(x)
            result.sum().backward()
            results.append((result, x.grad))
        torch.testing.assert_close(*results[::-1], equal_nan=True)


@pytest.mark.parametrize("order", [-1.5, 2.0, float("inf")])
def test_norms_along_a_dimension_that_has_elements(order: float) -> None:
    """Of a tensor that has none: only a dimension of size 0 has no norm of each order."""
    x = torch.zeros(1, 0, 2)
    compiled = fusewright.compile(torch.linalg.vector_norm, options={"strict": True})
    for dims in (0, 2, (0, 2)):
        torch.testing.assert_close(
            compiled(x, order, dims), torch.linalg.vector_norm(x, order, dims)
        )
