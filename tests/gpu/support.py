"""What tests on a GPU share: when they are skipped, and how results are compared."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

CUDA = torch.device("cuda:0")

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") == "1",
        reason="Triton interprets here: set TRITON_INTERPRET=0",
    ),
]

TOLERANCES = {
    torch.float64: (1e-9, 1e-10),
    torch.float32: (3e-5, 2e-5),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}
"""Relative and absolute; other types have to be equal."""


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [tensor for part in parts for tensor in tensors_of(part)]


def agree(found: Any, wanted: Any, *, factor: float = 1, check_stride: bool = False) -> None:
    """Each tensor has the device, type and size of the other's, and its values but for rounding."""
    pairs = zip(tensors_of(found), tensors_of(wanted), strict=True)
    for position, (one, other) in enumerate(pairs):
        relative, absolute = TOLERANCES.get(other.dtype, (0.0, 0.0))
        torch.testing.assert_close(
            one,
            other,
            rtol=factor * relative,
            atol=factor * absolute,
            equal_nan=True,
            check_stride=check_stride,
            msg=lambda text, position=position: f"result {position}: {text}",
        )


def _scaled(result: torch.Tensor) -> torch.Tensor:
    largest = result.detach().abs().max() if result.numel() else torch.ones(())
    return result.double() / max(1.0, float(largest))


def gradients(function: Any, inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    """Of the sum of cosines of all results that have a gradient, each scaled to 1 at most: the
    cosine of a large number makes much of its rounding.
    """
    leaves = [
        value.detach().clone().requires_grad_() if value.is_floating_point() else value
        for value in inputs
    ]
    results = [one for one in tensors_of(function(*leaves)) if one.requires_grad]
    torch.stack([_scaled(one).cos().sum() for one in results]).sum().backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]
