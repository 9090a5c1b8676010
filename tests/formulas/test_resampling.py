"""Resampling compiled for any size is eager's, also beside infinite elements."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fusewright

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "linear": (1, {"mode": "linear"}),
    "bilinear": (2, {"mode": "bilinear"}),
    "bilinear, corners": (2, {"mode": "bilinear", "align_corners": True}),
    "bilinear, smoothed": (2, {"mode": "bilinear", "antialias": True}),
    "bicubic": (2, {"mode": "bicubic"}),
    "bicubic, smoothed": (2, {"mode": "bicubic", "antialias": True}),
    "trilinear": (3, {"mode": "trilinear"}),
}
TO: dict[str, dict[str, Any]] = {
    "one": {"size": 1},
    "a size": {"size": 4},
    "a factor": {"scale_factor": 1.7},
    "a whole factor": {"scale_factor": 2},
    "a factor of whole sizes": {"scale_factor": 1.7, "recompute_scale_factor": True},
}


@pytest.mark.parametrize("to", TO)
@pytest.mark.parametrize("case", CASES)
def test_resampling_of_any_size_is_eagers(case: str, to: str) -> None:
    count, keywords = CASES[case]

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **TO[to], **keywords)

    compiled = fusewright.compile(function, dynamic=True, options={"strict": True})
    for length in (3, 5):
        results = []
        for call in (function, compiled):
            torch.manual_seed(0)
            x = torch.randn(2, 3, *[length] * count).requires_grad_()
            x.data.view(-1)[::5] = torch.inf
            result = call(x)
            result.sum().backward()
            results.append((result, x.grad))
        torch.testing.assert_close(*results[::-1], equal_nan=True)


@pytest.mark.parametrize("to", ["a size", "a factor"])
@pytest.mark.parametrize("case", CASES)
def test_resampling_of_any_size_is_eagers_under_inference_mode(case: str, to: str) -> None:
    """There the operator comes whole, not as what it is made of."""
    count, keywords = CASES[case]

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **TO[to], **keywords)

    compiled = fusewright.compile(function, dynamic=True, options={"strict": True})
    with torch.inference_mode():
        for length in (3, 5):
            x = torch.randn(2, 3, *[length] * count, generator=torch.Generator().manual_seed(0))
            x.view(-1)[::5] = torch.inf
            torch.testing.assert_close(compiled(x), function(x), equal_nan=True)
