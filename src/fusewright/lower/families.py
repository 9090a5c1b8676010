"""The complete table of rules: every file of rules is imported here, and registers its own."""

from __future__ import annotations

from fusewright.lower import (  # noqa: F401
    convolution,
    copies,
    factories,
    indexing,
    normalization,
    pointwise,
    pooling,
    reductions,
    softmax,
    views,
)
from fusewright.lower.rules import RULES, VIEWS

__all__ = ["RULES", "VIEWS"]
