"""The error of a tensor against one that is held for exact."""

from __future__ import annotations

import torch


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """‖result − exact‖ / ‖exact‖, where `exact` is of float64."""
    return float((result.double() - exact).norm() / exact.norm())
