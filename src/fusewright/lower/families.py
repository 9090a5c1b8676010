"""The complete table of rules: every file of rules is imported here, and registers its own."""

from __future__ import annotations

from typing import Final

from fusewright.lower import (  # noqa: F401
    checks,
    convolution,
    copies,
    factories,
    indexing,
    normalization,
    pointwise,
    pooling,
    reductions,
    resampling,
    runs,
    scans,
    scatters,
    softmax,
    sorting,
    views,
)
from fusewright.lower.rules import RULES
from fusewright.operators import facts

__all__ = ["RULES", "VIEWS"]

VIEWS: Final = frozenset(name for name in RULES if facts(name).is_view)
"""Operators whose result shares memory with their argument; reading such a result reads the
argument.
"""
