"""Vector mathematics in LLVM IR text: one door to the functions and their definitions."""

from __future__ import annotations

from fusewright.kernels.llvm.mathematics import (
    exponential,
    integer,
    libm,
    special,
    trigonometric,
)
from fusewright.kernels.llvm.mathematics.registry import (
    FUNCTIONS,
    definition,
    definitions,
    supports,
    symbol,
)

__all__ = [
    "FUNCTIONS",
    "definition",
    "definitions",
    "exponential",
    "integer",
    "libm",
    "special",
    "supports",
    "symbol",
    "trigonometric",
]
