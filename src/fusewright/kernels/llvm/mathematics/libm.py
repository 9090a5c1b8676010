"""Functions computed lane by lane by the C library: double precision, and the rare ones.

| element | functions |
| --- | --- |
| double | every transcendental function; libm's are within one ulp |
| float | lgamma; sin, cos and tan of arguments past 2^30; fmod where the quotient passes 2^50 |
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.mathematics.registry import Body, vector_function

DOUBLE_UNARY = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
]  # fmt: skip
DOUBLE_BINARY = ["pow", "atan2", "fmod", "hypot"]


def per_lane(b: IRBuilder, function: str, *operands: Register) -> Register:
    """The C library's `function` on each lane of the operands, all of one type."""
    kind = operands[0].type
    b.required.setdefault(f"libm.{function}.{len(operands)}")
    result = Register(b, "poison", kind)
    for lane in range(kind.lanes):
        scalars = [b.extract(operand, lane) for operand in operands]
        arguments = ", ".join(f"{s.type} {s.text}" for s in scalars)
        value = b.emit(scalars[0].type, f"call {kind.element} @{function}({arguments})")
        result = value if kind.lanes == 1 else b.insert(result, value, lane)
    return result


def library_where(
    b: IRBuilder, function: str, beyond: Register, body: Callable[[], Register], *operands: Register
) -> Register:
    """The result of `body`, unless `beyond` holds in any lane: then of the C library's `function`,
    in all.
    """
    any_beyond = beyond
    if beyond.type.lanes > 1:
        name = f"llvm.vector.reduce.or.{beyond.type.suffix}"
        any_beyond = b.emit(VectorType("i1"), f"call i1 @{name}({beyond.type} {beyond.text})")
    b.line(f"br i1 {any_beyond.text}, label %library, label %vector")
    b.label("library")
    slow = per_lane(b, function, *operands)
    b.line("br label %done")
    b.label("vector")
    fast = body()
    b.line("br label %done")
    b.label("done")
    return b.emit(slow.type, f"phi {slow.type} [ {slow.text}, %library ], [ {fast.text}, %vector ]")


def _unary(function: str) -> Body:
    def body(b: IRBuilder, x: Register) -> Register:
        return per_lane(b, function, x)

    return body


def _binary(function: str) -> Body:
    def body(b: IRBuilder, x: Register, y: Register) -> Register:
        return per_lane(b, function, x, y)

    return body


for _name in DOUBLE_UNARY:
    vector_function(_name, "double")(_unary(_name))
for _name in DOUBLE_BINARY:
    vector_function(_name, "double")(_binary(_name))


@vector_function("lgamma", "float")
def lgamma(b: IRBuilder, x: Register) -> Register:
    """lgamma in double precision: the C library's for floats errs by many ulps near its zeros."""
    wide = per_lane(b, "lgamma", b.cast("fpext", x, "double"))
    return b.cast("fptrunc", wide, "float")


@vector_function("fmod", "float")
def fmod(b: IRBuilder, x: Register, y: Register) -> Register:
    """x - y * trunc(x / y), exact: in double, a quotient under 2^50 is off by one at most."""
    dividend = b.cast("fpext", b.absolute(x), "double")
    divisor = b.cast("fpext", b.absolute(y), "double")
    quotient = dividend / divisor

    def direct() -> Register:
        rest = b.fused(-b.intrinsic("trunc", quotient), divisor, dividend)
        rest = b.select(rest < 0.0, rest + divisor, rest)
        rest = b.select(rest >= divisor, rest - divisor, rest)
        # A finite number divided by an infinite one is its own rest; 0 * inf above made NaN of it.
        endless = divisor.equal(math.inf) & (dividend < math.inf)
        rest = b.select(endless, dividend, rest)
        return b.copy_sign(b.cast("fptrunc", rest, "float"), x)

    beyond = (quotient > 2.0**50) & (quotient < math.inf)
    return library_where(b, "fmodf", beyond, direct, x, y)
