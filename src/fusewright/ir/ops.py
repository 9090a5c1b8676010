"""The operations of bodies, declared once: arity, type rule, cost and meaning; printer, verifier,
schedulers and emitters read this table.

Arithmetic happens in the type of the arguments, which must agree; `cast` is the only way from one
type to another. Lowering has already promoted types and moved f16 and bf16 to f32, so no operation
rounds to a half type. Floating-point operations follow IEEE 754; where torch differs from C,
torch's meaning is the one here.
"""

from __future__ import annotations

from enum import Enum, auto

from fusewright.records import record, replace


class Result(Enum):
    """How the type of a result follows from the arguments."""

    SAME = auto()
    """The common type of all arguments."""

    BOOL = auto()
    """bool, whatever the (common) argument type."""

    SECOND = auto()
    """`where(condition: bool, a, b)`: the common type of the second and third argument."""


@record
class ScalarOperation:
    """One row of the table."""

    name: str
    arity: int
    result: Result
    kinds: str
    """The argument kinds that it takes: any of f (float), i (signed and unsigned), b (bool)."""

    meaning: str
    cost: int = 1
    """The work on one element, in additions; about the throughput of vectors on a CPU, where a
    division of integers has no vectors.
    """

    may_raise: bool = False
    """Whether integers of some values raise: a divisor of 0."""


def _rows(
    result: Result, arity: int, kinds: str, cost: int = 1, **meanings: str
) -> list[ScalarOperation]:
    return [
        ScalarOperation(name, arity, result, kinds, text, cost) for name, text in meanings.items()
    ]


_UNARY = [
    *_rows(
        Result.SAME, 1, "f", 2,
        floor="round down", ceil="round up", trunc="round towards zero",
        round="round to nearest, ties to even",
    ),
    *_rows(Result.SAME, 1, "f", 4, sqrt="square root", rsqrt="1 / sqrt(x)", reciprocal="1 / x"),
    *_rows(
        Result.SAME, 1, "f", 10,
        exp="e**x", exp2="2**x", expm1="e**x - 1, exact near 0",
        log="natural logarithm", log2="base 2", log10="base 10", log1p="log(1 + x), exact near 0",
        tanh="hyperbolic tangent", erf="error function",
    ),
    *_rows(
        Result.SAME, 1, "f", 20,
        sin="sine", cos="cosine", tan="tangent",
        asin="arc sine", acos="arc cosine", atan="arc tangent",
        sinh="hyperbolic sine", cosh="hyperbolic cosine",
        asinh="inverse of sinh", acosh="inverse of cosh", atanh="inverse of tanh",
        sigmoid="1 / (1 + exp(-x))", erfc="1 - erf(x), exact for large x",
        lgamma="log(abs(gamma(x)))",
    ),
    *_rows(Result.SAME, 1, "fi", neg="-x; integers wrap", abs="absolute value"),
    *_rows(Result.SAME, 1, "fi", 2, sign="-1, 0 or 1; 0 for NaN"),
]  # fmt: skip
_BINARY = [
    *_rows(Result.SAME, 2, "fi", add="x + y", sub="x - y", mul="x * y"),
    *_rows(
        Result.SAME, 2, "fib",
        maximum="the greater; NaN if either is", minimum="the smaller; NaN if either is",
    ),
    *_rows(Result.SAME, 2, "f", copysign="magnitude of x, sign of y"),
    *_rows(Result.SAME, 2, "f", 4, div="x / y"),
    *_rows(
        Result.SAME, 2, "f", 10,
        hypot="sqrt(x*x + y*y) without overflow", nextafter="next number from x towards y",
    ),
    *_rows(Result.SAME, 2, "f", 20, atan2="angle of (y=first, x=second)"),
    *_rows(Result.SAME, 2, "fi", 20, pow="x ** y"),
]  # fmt: skip
_DIVISIONS = [
    replace(row, may_raise=True)
    for row in _rows(
        Result.SAME, 2, "fi", 20,
        floor_div="x / y rounded down", trunc_div="x / y rounded towards zero",
        remainder="x - y * floor(x / y), the sign of y (Python's %)",
        fmod="x - y * trunc(x / y), the sign of x (C's fmod)",
    )
]  # fmt: skip
_LOGIC = [
    *_rows(
        Result.BOOL, 2, "fib",
        eq="x == y", ne="x != y", lt="x < y", le="x <= y", gt="x > y", ge="x >= y",
    ),
    *_rows(
        Result.BOOL, 1, "f",
        isnan="x is NaN", isinf="x is +inf or -inf", signbit="sign bit set, also of -0.0 and NaN",
    ),
    *_rows(Result.SAME, 2, "ib", bitwise_and="x & y", bitwise_or="x | y", bitwise_xor="x ^ y"),
    *_rows(Result.SAME, 1, "ib", bitwise_not="~x; logical not for bool"),
    *_rows(Result.SAME, 2, "i", shift_left="x << y", shift_right="x >> y, keeping the sign"),
]  # fmt: skip
_OTHER = [
    *_rows(Result.SECOND, 3, "fib", where="second where first (bool) is true, else third"),
    *_rows(Result.SAME, 3, "f", fma="x * y + z, rounded once"),
]

OPERATIONS: dict[str, ScalarOperation] = {
    row.name: row for row in (*_UNARY, *_BINARY, *_DIVISIONS, *_LOGIC, *_OTHER)
}
"""By name. `cast` is not here: it is a `Cast` value, which carries its type."""

RANDOM_COST = 40
"""What a random number costs, in additions."""

REDUCTION_KINDS: dict[str, str] = {
    "sum": "sum; 0 for nothing",
    "dot": "sum of a product of two operands, as in a matrix product; 0 for nothing",
    "prod": "product; 1 for nothing",
    "max": "greatest, NaN if any is; needs at least one element",
    "min": "smallest, NaN if any is; needs at least one element",
    "any": "logical or of bool; false for nothing",
    "all": "logical and of bool; true for nothing",
    "argmax": "i64 position (row-major) of the first greatest, or of the first NaN",
    "argmin": "i64 position of the first smallest, or of the first NaN",
    "xor": "bitwise exclusive or",
    "welford": "two results: mean, and sum of squared deviations from it",
}

SCAN_KINDS: dict[str, str] = {
    "sum": "sum, from 0",
    "prod": "product, from 1",
    "max": "greatest, NaN from the first NaN on; of equals, which zeros of two signs are, the last",
    "min": "smallest, likewise",
    "logsumexp": "logarithm of the sum of exponentials, from -inf",
}
"""The kinds of a scan: each result gathers one element and all before it."""
