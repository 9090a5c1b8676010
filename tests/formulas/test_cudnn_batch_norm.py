"""What cudnn's batch norm is taken apart into is what torch's own gives, and its gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.formulas.normalization import (
    cudnn_batch_norm,
    cudnn_batch_norm_backward,
)

aten = torch.ops.aten


def batch(*sizes: int) -> tuple[Any, ...]:
    """Numbers, weight, bias, running mean and variance."""
    generator = torch.Generator().manual_seed(3)
    make = [torch.randn(size, generator=generator) for size in (sizes, *[sizes[1]] * 3)]
    return (*make, torch.rand(sizes[1], generator=generator) + 0.5)


@pytest.mark.parametrize("tracked", [True, False])
def test_training(tracked: bool) -> None:
    x, weight, bias, mean, variance = batch(4, 6, 5, 5)
    own = [mean.clone(), variance.clone()] if tracked else [None, None]
    running = [mean.clone(), variance.clone()] if tracked else [None, None]
    found = cudnn_batch_norm(x, weight, bias, *own, True, 0.1, 1e-5)
    wanted = aten.native_batch_norm.default(x, weight, bias, *running, True, 0.1, 1e-5)
    for one, other in zip((*found[:3], *own), (*wanted, *running), strict=True):
        torch.testing.assert_close(one, other)
    assert (found[3].dtype, found[3].shape) == (torch.uint8, (0,))

    gradient = torch.randn_like(x)
    mine = cudnn_batch_norm_backward(x, gradient, weight, *own, *found[1:3], 1e-5, found[3])
    theirs = aten.native_batch_norm_backward.default(
        gradient, x, weight, *running, *wanted[1:], True, 1e-5, [True, True, True]
    )
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_fixed_statistics_are_left_to_lowering() -> None:
    assert cudnn_batch_norm(*batch(4, 6, 5, 5), False, 0.1, 1e-5) is NotImplemented
