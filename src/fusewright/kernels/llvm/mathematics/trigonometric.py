"""Trigonometric functions of single precision and their inverses, computed in double.

Arguments up to 2^30 are reduced by multiples of pi/2 held to 106 bits, which for a float argument
leaves more than single precision needs. Beyond, where a remainder needs hundreds of bits of pi, the
C library is called for the whole vector; no program does that in earnest, but the answer is right.
"""

from __future__ import annotations

import math

from fusewright.kernels.llvm.builder import IRBuilder, Register
from fusewright.kernels.llvm.mathematics import coefficients as table
from fusewright.kernels.llvm.mathematics.exponential import (
    INFINITY,
    NAN,
    WIDE_ROUNDER,
    narrow,
    widen,
)
from fusewright.kernels.llvm.mathematics.libm import library_where
from fusewright.kernels.llvm.mathematics.registry import Body, vector_function

HALF_PI_HIGH = 1.5707963267948966  # pi/2 in double precision, and what is missing from it
HALF_PI_LOW = 6.123233995736766e-17
REDUCIBLE = 2.0**30


def reduce_quadrant(b: IRBuilder, x: Register) -> tuple[Register, Register, Register]:
    """x = n pi/2 + r, |r| <= pi/4, of doubles: returns sin(r), cos(r) and n's low bits."""
    shifted = b.fused(x, x.like(2 / math.pi), x.like(WIDE_ROUNDER))
    n = shifted - WIDE_ROUNDER
    r = b.fused(n, x.like(-HALF_PI_HIGH), x)
    r = b.fused(n, x.like(-HALF_PI_LOW), r)
    square = r * r
    sine = b.fused(r * square, b.polynomial(square, table.SIN_WIDE), r)
    cosine = b.fused(square * square, b.polynomial(square, table.COS_WIDE), 1.0 - square * 0.5)
    return sine, cosine, shifted.bits()


def _sine(b: IRBuilder, x: Register) -> Register:
    sine, cosine, quadrant = reduce_quadrant(b, widen(b, x))
    value = b.select((quadrant & 1).equal(0), sine, cosine)
    result = narrow(b, (value.bits() ^ ((quadrant & 2) << 62)).as_floating())
    return b.select(x.equal(0.0), x, result)


def _cosine(b: IRBuilder, x: Register) -> Register:
    sine, cosine, quadrant = reduce_quadrant(b, widen(b, x))
    value = b.select((quadrant & 1).equal(0), cosine, sine)
    return narrow(b, (value.bits() ^ (((quadrant + 1) & 2) << 62)).as_floating())


def _tangent(b: IRBuilder, x: Register) -> Register:
    sine, cosine, quadrant = reduce_quadrant(b, widen(b, x))
    even = (quadrant & 1).equal(0)
    ratio = b.select(even, sine, -cosine) / b.select(even, cosine, sine)
    return b.select(x.equal(0.0), x, narrow(b, ratio))


def _reducible_or_library(function: str, body: Body) -> Body:
    """`body`, with the C library's function for vectors that hold an argument past its reach."""

    def whole(b: IRBuilder, x: Register) -> Register:
        magnitude = b.absolute(x)
        far = (magnitude > REDUCIBLE) & (magnitude < INFINITY)
        return library_where(b, function, far, lambda: body(b, x), x)

    return whole


vector_function("sin", "float")(_reducible_or_library("sinf", _sine))
vector_function("cos", "float")(_reducible_or_library("cosf", _cosine))
vector_function("tan", "float")(_reducible_or_library("tanf", _tangent))


def _odd_polynomial(b: IRBuilder, x: Register, coefficients: tuple[float, ...]) -> Register:
    """x + x³ P(x²)."""
    square = x * x
    return b.fused(x * square, b.polynomial(square, coefficients), x)


def _arc_sine_parts(b: IRBuilder, x: Register) -> tuple[Register, Register, Register]:
    """Three values, with m = |x|: whether m <= 1/2; asin(m) where it is; and elsewhere acos(m), as
    2 asin(sqrt((1 - m) / 2)).
    """
    magnitude = widen(b, b.absolute(x))
    near = magnitude <= 0.5
    root = b.intrinsic("sqrt", (1.0 - magnitude) * 0.5)
    value = _odd_polynomial(b, b.select(near, magnitude, root), table.ASIN_WIDE)
    return near, value, value * 2.0


@vector_function("asin", "float")
def asin(b: IRBuilder, x: Register) -> Register:
    near, small, complement = _arc_sine_parts(b, x)
    return b.copy_sign(narrow(b, b.select(near, small, HALF_PI_HIGH - complement)), x)


@vector_function("acos", "float")
def acos(b: IRBuilder, x: Register) -> Register:
    near, small, complement = _arc_sine_parts(b, x)
    negative = widen(b, x) < 0.0
    signed = b.select(negative, -small, small)
    far = b.select(negative, math.pi - complement, complement)
    return narrow(b, b.select(near, HALF_PI_HIGH - signed, far))


@vector_function("atan", "float")
def atan(b: IRBuilder, x: Register) -> Register:
    magnitude = widen(b, b.absolute(x))
    large = magnitude > 1.0
    inner = b.select(large, 1.0 / magnitude, magnitude)
    value = _odd_polynomial(b, inner, table.ATAN_WIDE)
    return b.copy_sign(narrow(b, b.select(large, HALF_PI_HIGH - value, value)), x)


@vector_function("atan2", "float")
def atan2(b: IRBuilder, y: Register, x: Register) -> Register:
    """The angle of the point (x, y), all signs and infinities as IEEE 754 has them."""
    rise, run = widen(b, b.absolute(y)), widen(b, b.absolute(x))
    steep = rise > run
    lesser, greater = b.select(steep, run, rise), b.select(steep, rise, run)
    ratio = lesser / greater
    ratio = b.select(greater.equal(0.0), ratio.like(0.0), ratio)
    ratio = b.select(lesser.equal(INFINITY), ratio.like(1.0), ratio)
    angle = _odd_polynomial(b, ratio, table.ATAN_WIDE)
    angle = b.select(steep, HALF_PI_HIGH - angle, angle)
    angle = b.select(widen(b, x).bits() < 0, math.pi - angle, angle)
    result = b.copy_sign(narrow(b, angle), y)
    return b.select(x.is_nan() | y.is_nan(), x.like(NAN), result)
