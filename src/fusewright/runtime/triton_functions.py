"""Functions that generated Triton kernels call: integer arithmetic as torch does it, and combiners.

Written for Triton's compiler and its interpreter alike. Where CUDA's libdevice has a function,
kernels call that one directly: it is what eager's CUDA kernels call too.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

# Division -----------------------------------------------------------------------------------------


@triton.jit
def floor_div(x, y):
    """Integers: x / y rounded down; Triton's own rounds towards zero."""
    quotient = x // y
    return tl.where((x % y != 0) & ((x < 0) != (y < 0)), quotient - 1, quotient)


@triton.jit
def remainder(x, y):
    """Integers: what `floor_div` leaves, with the sign of y."""
    rest = x % y
    return tl.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


@triton.jit
def divide(x, y):
    """Floats: x / y, rounded once; Triton's own f32 division is approximate. Its exact one takes
    many times as long for a numerator of 0, of which a masked softmax has many.
    """
    if x.dtype == tl.float32:
        quotient = tl.div_rn(tl.where(x == 0, 1.0, x), y)
        return tl.where(x == 0, x / y, quotient)
    return x / y


@triton.jit
def trunc(x):
    """Floats: rounded towards zero."""
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def fmod(x, y):
    """Floats: what division with truncation leaves. CUDA's own takes the smallest numbers for 0."""
    return tl.where(tl.abs(x) < tl.abs(y), x, libdevice.fmod(x, y))


@triton.jit
def float_floor_div(x, y):
    """Floats: x / y rounded down, exact where x / y itself would round up to an integer."""
    rest = fmod(x, y)
    quotient = divide(x - rest, y)
    quotient = tl.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)
    floor = tl.floor(quotient)
    floor = tl.where(quotient - floor > 0.5, floor + 1, floor)
    plain = divide(x, y)
    floor = tl.where(quotient == 0, libdevice.copysign(quotient, plain), floor)
    return tl.where(y == 0, plain, floor)


@triton.jit
def float_remainder(x, y):
    """Floats: what `float_floor_div` leaves, with the sign of y."""
    rest = fmod(x, y)
    return tl.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


# Elementwise --------------------------------------------------------------------------------------


@triton.jit
def reciprocal(x):
    """Floats: 1 / x, rounded once."""
    return divide(tl.full([], 1, x.dtype), x)


@triton.jit
def sqrt(x):
    """The square root, rounded once; Triton's own f32 root is approximate."""
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    return tl.sqrt(x)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return reciprocal(1 + libdevice.exp(-x))


@triton.jit
def sign(x):
    """-1, 0 or 1 in the type of x; 0 for NaN, as torch has it."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def nextafter(x, y):
    """Floats: the number next to x in the direction of y, by its bits."""
    kind: tl.constexpr = tl.int32 if x.dtype == tl.float32 else tl.int64
    bits = x.to(kind, bitcast=True)
    away = (y > x) == (x > 0)
    step = tl.where(away, 1, -1).to(kind)
    least = tl.full([], 1, kind).to(x.dtype, bitcast=True)
    stepped = (bits + step).to(x.dtype, bitcast=True)
    moved = tl.where(x == 0, tl.where(y > 0, least, least * -1.0), stepped)
    return tl.where((x != x) | (y != y), x + y, tl.where(x == y, y, moved))


@triton.jit
def maximum(x, y):
    """The greater; NaN if either is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(x, y):
    """The smaller; NaN if either is."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def integer_pow(x, y):
    """x ** y by squaring, wrapping around; for y < 0, 1 / x**-y rounded towards zero."""
    one = tl.full([], 1, x.dtype)
    result = x * 0 + one
    base = x + y * 0
    left = tl.where(y < 0, y * 0, y)
    for _ in range(x.dtype.primitive_bitwidth):
        result = tl.where((left & 1) != 0, result * base, result)
        base = base * base
        left = left >> 1
    odd = (y & 1) != 0
    minus = x * 0 - one
    inverse = tl.where(x == 1, one, tl.where(x == minus, tl.where(odd, minus, one), x * 0))
    return tl.where(y < 0, inverse, result)


@triton.jit
def shift_left(x, y):
    """x << y; 0 where y is no position of a bit."""
    bits = x.dtype.primitive_bitwidth
    inside = (y >= 0) & (y < bits)
    return tl.where(inside, x << tl.where(inside, y, y * 0), x * 0)


@triton.jit
def shift_right(x, y):
    """x >> y, keeping the sign; all sign where y is no position of a bit."""
    bits = x.dtype.primitive_bitwidth
    inside = (y >= 0) & (y < bits)
    return x >> tl.where(inside, y, y * 0 + (bits - 1))


@triton.jit
def rounded_to_bfloat16(x):
    """x of float32, rounded to bfloat16, in float32 again, whose upper half that is. Conversion of
    a single number is one of a unit that has a quarter of an instruction a cycle, and two
    instructions; of two numbers, of which the lower one is 0, it is one of the usual units.
    """
    text: tl.constexpr = "cvt.rn.bf16x2.f32 $0, $1, 0f00000000;"
    return tl.inline_asm_elementwise(text, "=r,r", [x], tl.float32, is_pure=True, pack=1)


# Approximations -----------------------------------------------------------------------------------
# In float32, of what is then rounded to a half type: off by some units of float32, and 0 instead of
# numbers below 2**-110.


@triton.jit
def quick_exp2(x):
    """2 ** x by one instruction; 0 where that is a subnormal number."""
    text: tl.constexpr = "ex2.approx.ftz.f32 $0, $1;"
    return tl.inline_asm_elementwise(text, "=r,r", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def quick_reciprocal(x):
    """1 / x by one instruction; 0 where that is a subnormal number."""
    text: tl.constexpr = "rcp.approx.ftz.f32 $0, $1;"
    return tl.inline_asm_elementwise(text, "=r,r", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def approximate_exp(x):
    """exp(x)."""
    return quick_exp2(x * 1.4426950408889634)


@triton.jit
def approximate_sigmoid(x):
    """1 / (1 + exp(-x))."""
    return quick_reciprocal(1 + quick_exp2(x * -1.4426950408889634))


@triton.jit
def approximate_bell(x):
    """exp(-x * x / 2)."""
    return quick_exp2((x * x) * -0.7213475204444817)


@triton.jit
def approximate_twice_normal(x):
    """1 + erf(x / sqrt(2)), twice the distribution function of the normal distribution. For x < 0
    it is the bell times a polynomial of 1 / (1 + c |x|), for others 2 minus that (the form is of
    C. Hastings, "Approximations for digital computers", 1955): fitted to be off by 2e-8 where |x|
    is less than 1.27, and beyond by a part in 2**17 of the bell's product. The reciprocal takes a
    step of Newton's, since GELU's slope is a small difference near -0.75.
    """
    size = tl.minimum(tl.abs(x), 1e9)  # Newton's step from infinity leads nowhere.
    divisor = tl.fma(size, 0.2545584412271571, 1.0)
    t = quick_reciprocal(divisor)
    t = tl.fma(t, tl.fma(divisor, t * -1.0, 1.0), t)
    sum = tl.fma(t, -0.1610749440458721, 0.5529629523192389)
    sum = tl.fma(t, sum, -0.33580059290068615)
    sum = tl.fma(t, sum, 0.41068619696237113)
    sum = tl.fma(t, sum, 0.11634547771514696)
    sum = tl.fma(t, sum, 0.2144704956203493)
    sum = tl.fma(t, sum, 0.20241040069899244)
    tail = t * sum * approximate_bell(x)
    return tl.where(x < 0, tail, 2.0 - tail)


@triton.jit
def approximate_one_plus_tanh(x):
    """1 + tanh(x): 2 / (1 + e) for x >= 0, else 2 e / (1 + e), where e is exp(-2 |x|)."""
    small = quick_exp2(tl.abs(x) * -2.8853900817779268)
    sum = 2.0 * quick_reciprocal(1 + small)
    return tl.where(x < 0, small * sum, sum)


@triton.jit
def approximate_one_minus_tanh_squared(x):
    """1 - tanh(x) ** 2: e (2 / (1 + e)) ** 2, where e is exp(-2 |x|)."""
    small = quick_exp2(tl.abs(x) * -2.8853900817779268)
    sum = 2.0 * quick_reciprocal(1 + small)
    return small * sum * sum


@triton.jit
def approximate_log_of_one_plus_small(x):
    """log(1 + exp(-|x|)), by a polynomial of the exponential, off by a part in 2**22."""
    small = quick_exp2(tl.abs(x) * -1.4426950408889634)
    sum = tl.fma(small, -0.00853922367705352, 0.044089712427288284)
    sum = tl.fma(small, sum, -0.10768187006755532)
    sum = tl.fma(small, sum, 0.17745256214790653)
    sum = tl.fma(small, sum, -0.24495470009892742)
    sum = tl.fma(small, sum, 0.33275481525635386)
    sum = tl.fma(small, sum, -0.4999740558136081)
    return small * tl.fma(small, sum, 0.9999998057231446)


# Random numbers -----------------------------------------------------------------------------------


@triton.jit
def quarters(size: tl.constexpr):
    """`tl.arange(0, size) // 4`, of which four elements beside each other are one value to LLVM."""
    each = tl.broadcast_to(tl.arange(0, size // 4)[:, None], [size // 4, 4])
    return tl.reshape(each, [size])


@triton.jit
def product_words(x, y):
    """The upper and the lower word of a product of two words: one multiplication of a GPU."""
    product = x.to(tl.uint64) * y
    return (product >> 32).to(tl.uint32), product.to(tl.uint32)


@triton.jit
def random_bits(seed, counter, position):
    """The word of `fusewright.philox.uniform` at a position, which four times the counter is at or
    up to three places before. A thread's elements that lie beside each other and have one counter
    are computed once, since LLVM finds that they are the same, and the last bits of each position.
    """
    counter = tl.full([], 0, tl.int32) + counter  # Triton has `to_tensor` from 3.7 on alone.
    lane = tl.full([], 0, tl.int32) + position
    key, other_key = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    a, b = counter.to(tl.uint32), tl.full([], 0, tl.uint32)
    if counter.dtype == tl.int64:
        b = (counter >> 32).to(tl.uint32)
    c, d = tl.full([], 0, tl.uint32), tl.full([], 0, tl.uint32)
    for _ in tl.static_range(10):
        upper, lower = product_words(a, 0xD2511F53)
        other_upper, other_lower = product_words(c, 0xCD9E8D57)
        a, b = other_upper ^ b ^ key, other_lower
        c, d = upper ^ d ^ other_key, lower
        key, other_key = key + 0x9E3779B9, other_key + 0xBB67AE85
    first, last = tl.where(lane & 1 == 0, a, b), tl.where(lane & 1 == 0, c, d)
    return tl.where(lane & 2 == 0, first, last)


@triton.jit
def uniform(bits):
    """The numbers of `fusewright.philox.uniform`, of a word each."""
    return (bits >> 8).to(tl.float32) * 5.9604644775390625e-08


# Combiners of reductions --------------------------------------------------------------------------


@triton.jit
def multiply(x, y):
    """The product."""
    return x * y


@triton.jit
def add(x, y):
    """The sum."""
    return x + y


@triton.jit
def later_maximum(x, y):
    """The greater, y of equals; NaN if either is."""
    return tl.where((y >= x) | (y != y), y, x)


@triton.jit
def later_minimum(x, y):
    """The smaller, y of equals; NaN if either is."""
    return tl.where((y <= x) | (y != y), y, x)


@triton.jit
def logaddexp(x, y):
    """log(exp(x) + exp(y)), NaN if either is; infinities of one sign are their own sum."""
    low, high = minimum(x, y), maximum(x, y)
    same = (low == high) & (tl.abs(low) == float("inf"))
    total = libdevice.log1p(libdevice.exp(low - high)) + high
    return tl.where(same, high, total)


@triton.jit
def argmax(value, index, other, other_index):
    """The greater with its index; NaN is the greatest, and of equals the first is taken."""
    both_nan = (value != value) & (other != other)
    equal = (value == other) | both_nan
    better = (other > value) | ((other != other) & (value == value))
    taken = better | (equal & (other_index < index))
    return tl.where(taken, other, value), tl.where(taken, other_index, index)


@triton.jit
def argmin(value, index, other, other_index):
    """The smaller with its index; NaN is the smallest, and of equals the first is taken."""
    both_nan = (value != value) & (other != other)
    equal = (value == other) | both_nan
    better = (other < value) | ((other != other) & (value == value))
    taken = better | (equal & (other_index < index))
    return tl.where(taken, other, value), tl.where(taken, other_index, index)


@triton.jit
def welford_step(mean, deviation, value, share):
    """The mean and the sum of squared deviations with one more value, which is the `share` of all
    so far (Welford, 1962).
    """
    delta = value - mean
    moved = mean + delta * share
    return moved, deviation + delta * (value - moved)


@triton.jit
def welford(mean, deviation, weight, axis):
    """Means and sums of squared deviations of parts, `weight` elements each, as those of all parts
    together (Chan et al., 1979). The mean is taken from the greatest of theirs on, so that equal
    numbers have no deviation; a part without weight changes nothing.
    """
    start = tl.max(tl.where(weight == 0, float("-inf"), mean), axis, keep_dims=True)
    count = tl.sum(weight, axis, keep_dims=True)
    start = tl.where(count == 0, 0.0, start)
    apart = tl.where(weight == 0, 0.0, mean - start)
    moved = tl.sum(apart * weight, axis, keep_dims=True) / tl.where(count == 0, 1.0, count)
    apart = tl.where(weight == 0, 0.0, apart - moved)
    squares = tl.sum(deviation + (apart * weight) * apart, axis, keep_dims=True)
    return start + moved, squares
