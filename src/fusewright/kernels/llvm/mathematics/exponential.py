"""Exponentials, logarithms, powers and hyperbolic functions of single precision.

Errors, in units in the last place over the whole range, are tested in tests/kernels/llvm. Where one
says *wide* the work is done in double precision with polynomials good to 1e-10, and rounded once at
the end: that is the simplest way to an error under one ulp where single precision would cancel.
"""

from __future__ import annotations

import math

from fusewright.kernels.llvm.builder import IRBuilder, Register
from fusewright.kernels.llvm.mathematics import coefficients as table
from fusewright.kernels.llvm.mathematics.registry import symbol, vector_function

INFINITY = math.inf
NAN = math.nan

ROUNDER = (
    12582912.0  # 1.5 * 2^23: adding it rounds a small float to an integer, held in the low bits
)
WIDE_ROUNDER = 6755399441055744.0  # 1.5 * 2^52, the same for doubles

LN2_HIGH = 0.693145751953125  # ln 2 in 16 bits, so that small multiples are exact, and the rest
LN2_LOW = 1.4286068203094172e-06
LOG2_E = 1.4426950408889634
LOG2_E_HIGH = 1.44269502162933349609375
LOG2_E_LOW = 1.9259629911266175e-08
LOG10_E_HIGH = 0.434294492006301879882812
LOG10_E_LOW = -1.0103050052231683e-08
LOG10_2_HIGH = 0.301030009984970092773438
LOG10_2_LOW = -1.4320988897559699e-08

SMALLEST_NORMAL = 2.0**-126
ROOT_HALF_BITS = 0x3F3504F3  # sqrt(1/2) in single precision
WIDE_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD


def clamp(b: IRBuilder, x: Register, low: float, high: float) -> Register:
    """`x` limited to [low, high]; NaN stays NaN."""
    x = b.select(x < low, x.like(low), x)
    return b.select(x > high, x.like(high), x)


# -- exponentials -----------------------------------------------------------------------------


def reduce_exponential(b: IRBuilder, x: Register) -> tuple[Register, Register, Register]:
    """x = n ln 2 + r with |r| <= ln(2) / 2: returns r, n, and n as an integer in the low bits."""
    shifted = b.fused(x, x.like(LOG2_E), x.like(ROUNDER))
    n = shifted - ROUNDER
    r = b.fused(n, x.like(-LN2_HIGH), x)
    return b.fused(n, x.like(-LN2_LOW), r), n, shifted.bits()


def exponential_of_reduced(b: IRBuilder, r: Register) -> Register:
    """exp(r) for |r| <= ln(2) / 2."""
    slope = b.polynomial(r, (1.0, *table.EXP))
    return b.fused(slope, r, r.like(1.0))


def scale_far(b: IRBuilder, y: Register, n: Register, low_bits: Register) -> Register:
    """y * 2^n for n from -252 to 254, rounded once where the result is subnormal.

    One instruction where there is one. Else two steps, of which the first is exact.
    """
    if b.has_scalef and y.type.lanes in SCALEF:
        return _scalef(b, y, n)
    exponent = (low_bits << 9) >> 9
    half = exponent >> 1
    first = ((half << 23) + 0x3F800000).as_floating()
    second = (((exponent - half) << 23) + 0x3F800000).as_floating()
    return y * first * second


SCALEF = {16: ("512", "i16", ", i32 4"), 8: ("256", "i8", ""), 4: ("128", "i8", "")}
"""The intrinsic by the number of lanes: the width in the intrinsic's name, its mask type, and its
rounding argument.
"""


def _scalef(b: IRBuilder, y: Register, n: Register) -> Register:
    width, mask, rounding = SCALEF[y.type.lanes]
    return b.emit(
        y.type,
        f"call {y.type} @llvm.x86.avx512.mask.scalef.ps.{width}({y.type} {y.text}, "
        f"{y.type} {n.text}, {y.type} zeroinitializer, {mask} -1{rounding})",
    )


def scale_near(y: Register, low_bits: Register) -> Register:
    """y * 2^n where the result is a normal number."""
    return (y.bits() + (low_bits << 23)).as_floating()


@vector_function("exp", "float")
def exp(b: IRBuilder, x: Register) -> Register:
    r, n, low_bits = reduce_exponential(b, clamp(b, x, -104.0, 89.0))
    return scale_far(b, exponential_of_reduced(b, r), n, low_bits)


@vector_function("exp2", "float")
def exp2(b: IRBuilder, x: Register) -> Register:
    x = clamp(b, x, -151.0, 129.0)
    shifted = x + ROUNDER
    n = shifted - ROUNDER
    r = x - n
    y = b.fused(b.polynomial(r, table.EXP2M1), r, r.like(1.0))
    return scale_far(b, y, n, shifted.bits())


@vector_function("expm1", "float")
def expm1(b: IRBuilder, x: Register) -> Register:
    limited = clamp(b, x, -30.0, 89.0)
    r, n, low_bits = reduce_exponential(b, limited)
    small = b.fused(r * r, b.polynomial(r, table.EXPM1), r)
    # 2^n (1 + small) - 1 = 2 (2^(n-1) small + (2^(n-1) - 1/2)), where 2^(n-1) never overflows.
    half_power = ((low_bits << 23) + 0x3F000000).as_floating()
    result = b.fused(half_power, small, half_power - 0.5) * 2.0
    # n = 0 is a third of all uses, and exact as it stands; it also keeps -0 and subnormals.
    return b.select(n.equal(0.0), b.select(x.equal(0.0), x, small), result)


@vector_function("sigmoid", "float")
def sigmoid(b: IRBuilder, x: Register) -> Register:
    """With e = exp(-|x|), which never overflows: s = e / (1 + e) for negative x, else 1 - s.

    The rounding of 1 + e is put right after the division, s + s (1 - s) * (what was rounded off).
    """
    e = b.call(symbol("exp", x.type), x.type, -b.absolute(x))
    denominator = e + 1.0
    gained = (denominator - 1.0) - e
    s = e / denominator
    s = b.fused(s * gained, 1.0 - s, s)
    return b.select(x < 0.0, s, 1.0 - s)


@vector_function("tanh", "float")
def tanh(b: IRBuilder, x: Register) -> Register:
    magnitude = b.absolute(x)
    square = x * x
    small = b.fused(magnitude * square, b.polynomial(square, table.TANH), magnitude)
    limited = b.select(magnitude > 10.0, x.like(10.0), magnitude)
    r, _, n = reduce_exponential(b, limited * 2.0)
    e = scale_near(exponential_of_reduced(b, r), n)
    large = 1.0 - 2.0 / (e + 1.0)
    return b.copy_sign(b.select(magnitude >= 0.625, large, small), x)


# -- logarithms -------------------------------------------------------------------------------


def split_exponent(b: IRBuilder, x: Register) -> tuple[Register, Register]:
    """x = 2^e (1 + f) with 1 + f from sqrt(1/2) to sqrt(2), for positive x: returns e and f."""
    subnormal = x < SMALLEST_NORMAL
    x = b.select(subnormal, x * 2.0**23, x)
    offset = x.bits() - ROOT_HALF_BITS
    e = b.cast("sitofp", offset >> 23, "float")
    e = b.select(subnormal, e - 23.0, e)
    m = ((offset & 0x7FFFFF) + ROOT_HALF_BITS).as_floating()
    return e, m - 1.0


def logarithm_limits(b: IRBuilder, x: Register, result: Register) -> Register:
    """`result` but for the ends of a logarithm's domain: -inf at 0, NaN below, inf and NaN kept."""
    finite = b.select(x < 0.0, x.like(NAN), result)
    finite = b.select(x.equal(0.0), x.like(-INFINITY), finite)
    return b.select(x < INFINITY, finite, x)


@vector_function("log", "float")
def log(b: IRBuilder, x: Register) -> Register:
    e, f = split_exponent(b, x)
    return logarithm_limits(b, x, _log_of_split(b, e, f))


def _log_of_split(b: IRBuilder, e: Register, f: Register) -> Register:
    """e ln 2 + log(1 + f), the small terms first."""
    square = f * f
    tail = b.fused(e, e.like(LN2_LOW), f * square * b.polynomial(f, table.LOG))
    tail = b.fused(square, f.like(-0.5), tail)
    return b.fused(e, e.like(LN2_HIGH), tail + f)


@vector_function("log1p", "float")
def log1p(b: IRBuilder, x: Register) -> Register:
    """With u = 1 + x rounded, the part of x lost in u is added back to the reduced argument."""
    u = x + 1.0
    # The larger of 1 and x is the one to subtract from u without error.
    lost = b.select(x < 1.0, x - (u - 1.0), 1.0 - (u - x))
    offset = u.bits() - ROOT_HALF_BITS
    e = offset >> 23
    m = ((offset & 0x7FFFFF) + ROOT_HALF_BITS).as_floating()
    # 2^-e; where e is large what is lost is too small to matter, and the power must stay normal.
    scale = (0x3F800000 - (b.intrinsic("smin", e, 100) << 23)).as_floating()
    f = b.fused(lost, scale, m - 1.0)
    result = _log_of_split(b, b.cast("sitofp", e, "float"), f)
    result = b.select(x.equal(0.0), x, result)
    result = b.select(x < -1.0, x.like(NAN), b.select(x.equal(-1.0), x.like(-INFINITY), result))
    return b.select(x < INFINITY, result, x)


@vector_function("log2", "float")
def log2(b: IRBuilder, x: Register) -> Register:
    e, f = split_exponent(b, x)
    tail = b.fused(f, f.like(LOG2_E_LOW), f * f * b.polynomial(f, table.LOG2))
    return logarithm_limits(b, x, b.fused(f, f.like(LOG2_E_HIGH), tail) + e)


@vector_function("log10", "float")
def log10(b: IRBuilder, x: Register) -> Register:
    e, f = split_exponent(b, x)
    tail = b.fused(f, f.like(LOG10_E_LOW), f * f * b.polynomial(f, table.LOG10))
    tail = b.fused(e, e.like(LOG10_2_LOW), tail)
    result = b.fused(e, e.like(LOG10_2_HIGH), b.fused(f, f.like(LOG10_E_HIGH), tail))
    return logarithm_limits(b, x, result)


# -- wide: double precision, for results in single ----------------------------------------------


def widen(b: IRBuilder, x: Register) -> Register:
    return b.cast("fpext", x, "double")


def narrow(b: IRBuilder, x: Register) -> Register:
    return b.cast("fptrunc", x, "float")


def exp_wide(b: IRBuilder, x: Register) -> Register:
    """exp(x) of doubles from -700 to 700; relative error 2e-12."""
    shifted = b.fused(x, x.like(LOG2_E), x.like(WIDE_ROUNDER))
    n = shifted - WIDE_ROUNDER
    r = b.fused(n, x.like(-0.6931471805599453), x)
    y = b.fused(r * r, b.polynomial(r, table.EXP_WIDE), r) + 1.0
    return (y.bits() + (shifted.bits() << 52)).as_floating()


def log_wide(b: IRBuilder, x: Register) -> Register:
    """log(x) of positive normal doubles; relative error 1e-12. Other x give no useful number."""
    offset = x.bits() - (WIDE_ROOT_HALF_BITS - (1023 << 52))
    # The exponent, made a double by planting it in the low bits of 2^52.
    exponent = (b.shift_logical(offset, 52) | 0x4330000000000000).as_floating()
    e = exponent - (2.0**52 + 1023)
    f = ((offset & ((1 << 52) - 1)) + WIDE_ROOT_HALF_BITS).as_floating() - 1.0
    value = b.fused(f * f, b.polynomial(f, table.LOG_WIDE), f)
    return b.fused(e, e.like(0.6931471805599453), value)


@vector_function("pow", "float")
def pow_(b: IRBuilder, x: Register, y: Register) -> Register:
    """Wide: exp(y log|x|), then the sign and the special cases of IEEE 754's pow."""
    magnitude = b.absolute(x)
    logarithm = log_wide(b, widen(b, magnitude))
    logarithm = b.select(widen(b, magnitude).equal(0.0), logarithm.like(-INFINITY), logarithm)
    endless = b.select(magnitude < INFINITY, logarithm, widen(b, magnitude))
    product = clamp(b, widen(b, y) * endless, -200.0, 200.0)
    power = narrow(b, exp_wide(b, product))
    # |x| = 1 to an infinite power is 0 * inf above.
    power = b.select(magnitude.equal(1.0), x.like(1.0), power)

    whole = b.intrinsic("floor", y).equal(y)
    half = y * 0.5
    odd = whole & b.intrinsic("floor", half).unequal(half)
    power = b.select(odd, b.copy_sign(power, x), power)
    undefined = (x < 0.0) & (x > -INFINITY) & (whole ^ True)
    power = b.select(undefined | y.is_nan(), x.like(NAN), power)
    return b.select(x.equal(1.0) | y.equal(0.0), x.like(1.0), power)


@vector_function("sinh", "float")
def sinh(b: IRBuilder, x: Register) -> Register:
    """Wide: a polynomial up to 1, (e^x - e^-x) / 2 beyond."""
    magnitude = widen(b, b.absolute(x))
    limited = b.select(magnitude > 100.0, magnitude.like(100.0), magnitude)
    e = exp_wide(b, limited)
    square = magnitude * magnitude
    small = b.fused(magnitude * square, b.polynomial(square, table.SINH_WIDE), magnitude)
    large = (e - 1.0 / e) * 0.5
    return b.copy_sign(narrow(b, b.select(magnitude < 1.0, small, large)), x)


@vector_function("cosh", "float")
def cosh(b: IRBuilder, x: Register) -> Register:
    """Wide: (e^x + e^-x) / 2."""
    magnitude = widen(b, b.absolute(x))
    e = exp_wide(b, b.select(magnitude > 100.0, magnitude.like(100.0), magnitude))
    return narrow(b, (e + 1.0 / e) * 0.5)


@vector_function("asinh", "float")
def asinh(b: IRBuilder, x: Register) -> Register:
    """Wide: log(|x| + sqrt(x² + 1)); below 1e-4 the argument itself is right to 2e-9."""
    magnitude = widen(b, b.absolute(x))
    root = b.intrinsic("sqrt", b.fused(magnitude, magnitude, magnitude.like(1.0)))
    large = log_wide(b, magnitude + root)
    wide = narrow(b, b.select(magnitude < 1e-4, magnitude, large))
    return b.copy_sign(b.select(b.absolute(x) < INFINITY, wide, x), x)


@vector_function("acosh", "float")
def acosh(b: IRBuilder, x: Register) -> Register:
    """Wide: log(x + sqrt((x - 1)(x + 1))); NaN below 1."""
    wide = widen(b, x)
    root = b.intrinsic("sqrt", (wide - 1.0) * (wide + 1.0))
    result = narrow(b, log_wide(b, wide + root))
    result = b.select(x < 1.0, x.like(NAN), result)
    return b.select(x < INFINITY, result, x)


@vector_function("atanh", "float")
def atanh(b: IRBuilder, x: Register) -> Register:
    """Wide: log((1 + x) / (1 - x)) / 2; below 1e-4 the argument itself is right to 4e-9."""
    magnitude = widen(b, b.absolute(x))
    ratio = (magnitude + 1.0) / (1.0 - magnitude)
    result = b.select(magnitude < 1e-4, magnitude, log_wide(b, ratio) * 0.5)
    result = b.select(magnitude.equal(1.0), result.like(INFINITY), result)
    result = b.select(magnitude <= 1.0, result, result.like(NAN))
    return b.copy_sign(narrow(b, result), x)
