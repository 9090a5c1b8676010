"""The error function and its kin, of single precision."""

from __future__ import annotations

from fusewright.kernels.llvm.builder import IRBuilder, Register
from fusewright.kernels.llvm.mathematics import coefficients as table
from fusewright.kernels.llvm.mathematics.exponential import (
    ROUNDER,
    exp_wide,
    narrow,
    scale_near,
    widen,
)
from fusewright.kernels.llvm.mathematics.registry import vector_function


@vector_function("erf", "float")
def erf(b: IRBuilder, x: Register) -> Register:
    """An odd polynomial up to 0.9; beyond, 1 - 2^P, where P fits the binary logarithm of erfc."""
    if b.can_look_up(x):
        return _erf_by_rows(b, x)
    magnitude = b.absolute(x)
    small = b.fused(magnitude, b.polynomial(x * x, table.ERF), magnitude)
    limited = b.select(magnitude > 4.0, x.like(4.0), magnitude)
    exponent = b.polynomial(limited, table.ERF_TAIL)
    shifted = exponent + ROUNDER
    r = exponent - (shifted - ROUNDER)
    power = scale_near(b.polynomial(r, (1.0, *table.EXP2_SHORT)), shifted.bits())
    return b.copy_sign(b.select(magnitude >= 0.9, 1.0 - power, small), x)


def _erf_by_rows(b: IRBuilder, x: Register) -> Register:
    """One of sixteen polynomials a lane, about the nearest multiple of ERF_STEP.

    Their coefficients stand in registers, from which one instruction picks each lane's own. That is
    half the instructions of the form above. From ERF_LIMIT on the last of them is exactly 1.
    """
    magnitude = b.absolute(x)
    limited = b.select(magnitude > table.ERF_LIMIT, x.like(table.ERF_LIMIT), magnitude)
    shifted = b.fused(limited, x.like(1 / table.ERF_STEP), x.like(ROUNDER))
    distance = b.fused(shifted - ROUNDER, x.like(-table.ERF_STEP), limited)
    first, *rest = (b.look_up(row, shifted.bits()) for row in table.ERF_ROWS)
    first = b.select(magnitude < table.ERF_STEP / 2, distance, first)
    value = rest.pop()
    for coefficient in (*reversed(rest), first):
        value = b.fused(value, distance, coefficient)
    return b.copy_sign(value, x)


@vector_function("erfc", "float")
def erfc(b: IRBuilder, x: Register) -> Register:
    """Wide: exp(-x²) P(t) / (1 + 2|x|) with t = (|x| - 2) / (|x| + 2), mirrored for negative x."""
    magnitude = widen(b, b.absolute(x))
    limited = b.select(magnitude > 10.1, magnitude.like(10.1), magnitude)
    t = (limited - 2.0) / (limited + 2.0)
    gaussian = exp_wide(b, -(limited * limited))
    value = (
        gaussian
        * b.polynomial(t, table.ERFC_WIDE)
        / b.fused(limited, limited.like(2.0), limited.like(1.0))
    )
    result = narrow(b, b.select(widen(b, x) < 0.0, 2.0 - value, value))
    result = b.select(x > 10.1, x.like(0.0), result)
    return b.select(x.is_nan(), x, result)
