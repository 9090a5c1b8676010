"""Each operation of `ir.ops` in LLVM IR: one row an operation, torch's meaning in every corner.

A row takes an `Operands` record and returns the result's register. Registers hold scalars or
vectors alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fusewright.errors import FusewrightError
from fusewright.ir.dtype import DType
from fusewright.kernels.llvm.builder import IRBuilder, Register
from fusewright.kernels.llvm.mathematics import supports, symbol
from fusewright.records import record


class UnsupportedOperation(FusewrightError):
    """The CPU target cannot write an operation on a type."""


def no_fault(condition: Register) -> None:
    """Ignore divisions by zero: the caller did not ask for faults."""


@record
class Operands:
    """The arguments of one operation."""

    b: IRBuilder
    dtype: DType
    """The arguments' common type (of `where`: the type of its two choices)."""

    values: tuple[Register, ...]
    constants: tuple[float | int | bool | None, ...]
    """The number behind each argument that is one."""

    divided_by_zero: Callable[[Register], None] = no_fault
    """Told the lanes in which an integer is divided by zero."""


Row = Callable[[Operands], Register]


def apply(operation: str, operands: Operands) -> Register:
    """Write `operation` on its operands."""
    return row_of(operation, operands.dtype)(operands)


def row_of(operation: str, dtype: DType) -> Row:
    """The row for an operation on a type."""
    family = "float" if dtype.is_float else "bool" if dtype is DType.BOOL else "integer"
    row = TABLE.get((operation, family)) or TABLE.get((operation, "any"))
    if row is not None:
        return row
    if family == "float" and supports(operation, _element(dtype)):
        return _mathematics(operation)
    raise UnsupportedOperation(f"the CPU target has no {operation} on {dtype}")


def _element(dtype: DType) -> str:
    return {DType.F32: "float", DType.F64: "double"}.get(dtype, "")


def _mathematics(name: str) -> Row:
    """A call of a vector function."""

    def row(o: Operands) -> Register:
        kind = o.values[0].type
        return o.b.call(symbol(name, kind), kind, *o.values)

    return row


def _intrinsic(name: str) -> Row:
    def row(o: Operands) -> Register:
        return o.b.intrinsic(name, *o.values)

    return row


def _binary(name: str) -> Row:
    def row(o: Operands) -> Register:
        return o.b.binary(name, *o.values)

    return row


def _compare(relation: str) -> Row:
    """A comparison; signed, unsigned or floating-point by type."""

    def row(o: Operands) -> Register:
        left, right = o.values
        return o.b.compare(relation, left, right, unsigned=o.dtype.kind == "unsigned")

    return row


# Numbers
# ---------------------------------------------------------------------------------------------


def _negate(o: Operands) -> Register:
    return -o.values[0]


def _absolute_integer(o: Operands) -> Register:
    (x,) = o.values
    return x if o.dtype.kind == "unsigned" else o.b.select(x < 0, -x, x)


def _sign_float(o: Operands) -> Register:
    """The sign of a real number; that of NaN is 0, as in eager."""
    (x,) = o.values
    negative = o.b.select(x < 0.0, x.like(-1.0), x.like(0.0))
    return o.b.select(x > 0.0, x.like(1.0), negative)


def _sign_integer(o: Operands) -> Register:
    (x,) = o.values
    positive = o.b.select(x.unequal(0), x.like(1), x)
    return positive if o.dtype.kind == "unsigned" else o.b.select(x < 0, x.like(-1), positive)


def _extreme_float(relation: str) -> Row:
    """maximum or minimum, NaN if either is; a constant operand saves the check of it."""

    def row(o: Operands) -> Register:
        x, y = o.values
        number_x, number_y = o.constants
        if number_x is not None and number_x == number_x:
            x, y, number_y = y, x, number_x
        if number_y is not None and number_y == number_y:
            return o.b.select(o.b.compare(relation, y, x), y, x)
        name = "maximum" if relation == "gt" else "minimum"
        return o.b.intrinsic(name, x, y, flags="nsz ")

    return row


def _extreme_integer(name: str) -> Row:
    def row(o: Operands) -> Register:
        return o.b.intrinsic(("u" if o.dtype.kind == "unsigned" else "s") + name, *o.values)

    return row


def _sigmoid_double(o: Operands) -> Register:
    (x,) = o.values
    return 1.0 / (o.b.call(symbol("exp", x.type), x.type, -x) + 1.0)


def _hypot_single(o: Operands) -> Register:
    """In double precision nothing overflows; an infinity wins over NaN."""
    x, y = (o.b.cast("fpext", value, "double") for value in o.values)
    root = o.b.cast("fptrunc", o.b.intrinsic("sqrt", o.b.fused(x, x, y * y)), "float")
    x, y = o.values
    infinite = o.b.absolute(x).equal(math.inf) | o.b.absolute(y).equal(math.inf)
    return o.b.select(infinite, root.like(math.inf), root)


def _next_after(o: Operands) -> Register:
    """Step the bits by one, away from zero where y lies farther out."""
    x, y = o.values
    b = o.b
    bits = x.bits()
    outward = (y > x) ^ (bits < 0)
    stepped = b.select(outward, bits + 1, bits - 1).as_floating()
    smallest = b.copy_sign(bits.like(1).as_floating(), y)
    stepped = b.select(x.equal(0.0), smallest, stepped)
    result = b.select(x.equal(y), y, stepped)
    return b.select(x.is_nan() | y.is_nan(), x.like(math.nan), result)


# Division
# --------------------------------------------------------------------------------------------


def _remainder_of_fmod(o: Operands, rest: Register) -> Register:
    """C's fmod moved to the divisor's sign."""
    y = o.values[1]
    wrong = rest.unequal(0) & ((rest < 0) ^ (y < 0))
    return o.b.select(wrong, rest + y, rest)


def _remainder_float(o: Operands) -> Register:
    return _remainder_of_fmod(o, _mathematics("fmod")(o))


def _floor_divide_float(o: Operands) -> Register:
    """torch's: the quotient of what fmod leaves, moved down where signs differ, rounded to the
    nearest integer."""
    x, y = o.values
    b = o.b
    rest = _mathematics("fmod")(o)
    quotient = (x - rest) / y
    quotient = b.select(rest.unequal(0.0) & ((y < 0.0) ^ (rest < 0.0)), quotient - 1.0, quotient)
    down = b.intrinsic("floor", quotient)
    rounded = b.select((quotient - down) > 0.5, down + 1.0, down)
    plain = x / y
    rounded = b.select(quotient.equal(0.0), b.copy_sign(x.like(0.0), plain), rounded)
    return b.select(y.equal(0.0), plain, rounded)


def _trunc_divide_float(o: Operands) -> Register:
    return o.b.intrinsic("trunc", o.values[0] / o.values[1])


def _safe_divide(o: Operands) -> tuple[Register, Register]:
    """Quotient rounded to zero, and rest. Zero divisors are reported; -1, which traps on the least
    integer, set apart."""
    x, y = o.values
    b = o.b
    zero = y.equal(0)
    if o.constants[1] in (None, 0):
        o.divided_by_zero(zero)
    if o.dtype.kind == "unsigned":
        divisor = b.select(zero, y.like(1), y)
        return b.binary("udiv", x, divisor), b.binary("urem", x, divisor)
    if o.constants[1] not in (None, 0, -1):
        quotient = b.binary("sdiv", x, y)
        return quotient, x - quotient * y
    minus_one = y.equal(-1)
    divisor = b.select(zero | minus_one, y.like(1), y)
    quotient = b.binary("sdiv", x, divisor)
    rest = b.select(minus_one, x.like(0), x - quotient * divisor)
    return b.select(minus_one, -x, quotient), rest


def _trunc_divide_integer(o: Operands) -> Register:
    return _safe_divide(o)[0]


def _floor_divide_integer(o: Operands) -> Register:
    quotient, rest = _safe_divide(o)
    if o.dtype.kind == "unsigned":
        return quotient
    wrong = rest.unequal(0) & ((rest < 0) ^ (o.values[1] < 0))
    return o.b.select(wrong, quotient - 1, quotient)


def _fmod_integer(o: Operands) -> Register:
    return _safe_divide(o)[1]


def _remainder_integer(o: Operands) -> Register:
    rest = _safe_divide(o)[1]
    return rest if o.dtype.kind == "unsigned" else _remainder_of_fmod(o, rest)


# Bits
# ------------------------------------------------------------------------------------------------


def _shift(left: bool) -> Row:
    """A count outside of [0, bits) gives 0, or all sign bits, as in eager."""

    def row(o: Operands) -> Register:
        x, count = o.values
        b = o.b
        inside = b.compare("lt", count, x.like(o.dtype.bits), unsigned=True)
        if not left and o.dtype.kind == "signed":
            return x >> b.select(inside, count, x.like(o.dtype.bits - 1))
        count = b.select(inside, count, x.like(0))
        shifted = x << count if left else b.shift_logical(x, count)
        return b.select(inside, shifted, x.like(0))

    return row


def _sign_bit(o: Operands) -> Register:
    return o.values[0].bits() < 0


TABLE: dict[tuple[str, str], Row] = {
    # floating point
    ("sqrt", "float"): _intrinsic("sqrt"),
    ("rsqrt", "float"): lambda o: 1.0 / o.b.intrinsic("sqrt", o.values[0]),
    ("reciprocal", "float"): lambda o: 1.0 / o.values[0],
    ("floor", "float"): _intrinsic("floor"),
    ("ceil", "float"): _intrinsic("ceil"),
    ("trunc", "float"): _intrinsic("trunc"),
    ("round", "float"): _intrinsic("roundeven"),
    ("abs", "float"): _intrinsic("fabs"),
    ("sign", "float"): _sign_float,
    ("add", "float"): _binary("fadd"),
    ("sub", "float"): _binary("fsub"),
    ("mul", "float"): _binary("fmul"),
    ("div", "float"): _binary("fdiv"),
    ("maximum", "float"): _extreme_float("gt"),
    ("minimum", "float"): _extreme_float("lt"),
    ("floor_div", "float"): _floor_divide_float,
    ("trunc_div", "float"): _trunc_divide_float,
    ("remainder", "float"): _remainder_float,
    ("copysign", "float"): lambda o: o.b.copy_sign(*o.values),
    ("nextafter", "float"): _next_after,
    ("fma", "float"): _intrinsic("fma"),
    ("isnan", "float"): lambda o: o.values[0].is_nan(),
    ("isinf", "float"): lambda o: o.b.absolute(o.values[0]).equal(math.inf),
    ("signbit", "float"): _sign_bit,
    # integers
    ("abs", "integer"): _absolute_integer,
    ("sign", "integer"): _sign_integer,
    ("add", "integer"): _binary("add"),
    ("sub", "integer"): _binary("sub"),
    ("mul", "integer"): _binary("mul"),
    ("maximum", "integer"): _extreme_integer("max"),
    ("minimum", "integer"): _extreme_integer("min"),
    ("floor_div", "integer"): _floor_divide_integer,
    ("trunc_div", "integer"): _trunc_divide_integer,
    ("remainder", "integer"): _remainder_integer,
    ("fmod", "integer"): _fmod_integer,
    ("pow", "integer"): lambda o: o.b.call(
        symbol("upow" if o.dtype.kind == "unsigned" else "ipow", o.values[0].type),
        o.values[0].type,
        *o.values,
    ),
    ("shift_left", "integer"): _shift(left=True),
    ("shift_right", "integer"): _shift(left=False),
    # bools
    ("maximum", "bool"): _binary("or"),
    ("minimum", "bool"): _binary("and"),
    # every kind
    ("neg", "any"): _negate,
    ("eq", "any"): _compare("eq"),
    ("ne", "any"): _compare("ne"),
    ("lt", "any"): _compare("lt"),
    ("le", "any"): _compare("le"),
    ("gt", "any"): _compare("gt"),
    ("ge", "any"): _compare("ge"),
    ("bitwise_and", "any"): _binary("and"),
    ("bitwise_or", "any"): _binary("or"),
    ("bitwise_xor", "any"): _binary("xor"),
    ("bitwise_not", "any"): lambda o: o.values[0] ^ (True if o.dtype is DType.BOOL else -1),
    ("where", "any"): lambda o: o.b.select(*o.values),
}


def _hypot(o: Operands) -> Register:
    return _hypot_single(o) if o.dtype is DType.F32 else _mathematics("hypot")(o)


def _sigmoid(o: Operands) -> Register:
    return _mathematics("sigmoid")(o) if o.dtype is DType.F32 else _sigmoid_double(o)


TABLE["hypot", "float"] = _hypot
TABLE["sigmoid", "float"] = _sigmoid
