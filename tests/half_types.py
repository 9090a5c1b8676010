"""Every number of a half type, and how far results are from exact ones, in units of the last place
there.
"""

from __future__ import annotations

from typing import Final

import torch

HALVES: Final = (torch.float16, torch.bfloat16)

MORE: Final = 1 / 8
"""Of a unit: what an approximation of float32 may add to an error."""

LEAST: Final = 2.0**-110
"""What is smaller may be 0."""


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Every number of a half type, infinities and NaN included."""
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)


def units_off(computed: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """How far numbers of a half type are from exact ones, in units of the last place there."""
    information = torch.finfo(dtype)
    size = torch.clamp(exact.abs(), min=max(information.smallest_normal, LEAST))
    unit = 2.0 ** size.log2().floor() * information.eps
    return ((computed.double() - exact).abs() / unit).nan_to_num(0.0)


def exact_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU of doubles without cancellation."""
    return x * 0.5 * torch.special.erfc(-x * 0.5**0.5)


def exact_tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU by tanh of doubles without cancellation."""
    return x * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))
