"""Rules of operators that compute each element from the elements at the same place: one table of
formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index
from fusewright.lower import activations
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.promotion import result_type
from fusewright.lower.rules import Rule, rule, words
from fusewright.lower.scalar import Operand, Scalar
from fusewright.symbolic.real import Real


class ComputeType(Enum):
    """The type in which a formula gets its operands."""

    RESULT = auto()
    """The type eager's result has (half types as f32)."""

    STORED = auto()
    """Operands as with RESULT, rounded as eager has them in memory: for formulas that jump."""

    PROMOTED = auto()
    """The operands' own common type, whatever the result is, of elements rounded as eager has them
    in memory, and then to that type, as numbers are: comparisons.
    """

    LOGICAL = auto()
    """bool: whether each, rounded as eager has it in memory, is not zero."""


Formula = Callable[..., Scalar]


def operation(name: str) -> Formula:
    """The formula that is one operation of `ir.ops`."""

    def formula(first: Operand, *others: Operand) -> Scalar:
        if isinstance(first, Scalar):
            return first.apply(name, *others)
        typed = next(other for other in others if isinstance(other, Scalar))
        return typed.like(first).apply(name, *others)

    return formula


# Formulas -----------------------------------------------------------------------------------------


def add(left: Scalar, right: Scalar, alpha: Operand = 1) -> Scalar:
    if left.dtype is DType.BOOL:
        return left | right
    if alpha == 1:
        return left + right
    return right.apply("fma", alpha, left) if left.dtype.is_float else left + right * alpha


def sub(left: Scalar, right: Scalar, alpha: Operand = 1) -> Scalar:
    """left - alpha right; eager adds -alpha times `right`, which the sign of a zero tells where
    `alpha` is the integer 0.
    """
    return left - right if alpha == 1 else add(left, right, -alpha)


def rsub(left: Scalar, right: Scalar, alpha: Operand = 1) -> Scalar:
    return sub(right, left, alpha)


def mul(left: Scalar, right: Scalar) -> Scalar:
    return left & right if left.dtype is DType.BOOL else left * right


def div(left: Scalar, right: Scalar) -> Scalar:
    """Dividing by a power of two is multiplying by its reciprocal, exactly."""
    divisor = right.constant
    if isinstance(divisor, float) and _is_moderate_power_of_two(divisor):
        return left * (1.0 / divisor)
    return left / right


def _is_moderate_power_of_two(number: float) -> bool:
    """A power of two whose reciprocal is a normal number of every float type computed in."""
    mantissa, exponent = math.frexp(number)
    return mantissa in (0.5, -0.5) and abs(exponent) < 100


def rounded_only_if_float(name: str) -> Formula:
    """Rounding an integer is the integer."""
    return lambda x: x.apply(name) if x.dtype.is_float else x


def ignoring_nan(name: str) -> Formula:
    """`maximum` or `minimum` that gives the other operand where one is NaN, and the first of
    equals: of zeros, its sign.
    """
    wins = {"maximum": "ge", "minimum": "le"}[name]

    def formula(left: Scalar, right: Scalar) -> Scalar:
        if not left.dtype.is_float:
            return left.apply(name, right)
        return (left.apply(wins, right) | right.apply("isnan")).where(left, right)

    return formula


def absolute(x: Scalar) -> Scalar:
    return x if x.dtype.kind in ("unsigned", "bool") else x.apply("abs")


def sign(x: Scalar) -> Scalar:
    return x if x.dtype is DType.BOOL else x.apply("sign")


def is_nan(x: Scalar) -> Scalar:
    return x.apply("isnan") if x.dtype.is_float else x.apply("ne", x)


def is_infinite(x: Scalar) -> Scalar:
    return x.apply("isinf") if x.dtype.is_float else x.apply("ne", x)


def is_one_infinity(bound: float) -> Formula:
    return lambda x: x.apply("eq", bound) if x.dtype.is_float else x.apply("ne", x)


def sign_bit(x: Scalar) -> Scalar:
    if x.dtype.is_float:
        return x.apply("signbit")
    return x.apply("ne", x) if x.dtype is DType.BOOL else x < 0


def clamp(x: Scalar, lowest: Operand | None = None, highest: Operand | None = None) -> Scalar:
    """NaN stays NaN; where the bounds cross, the upper one wins."""
    if lowest is not None:
        x = x.apply("maximum", lowest)
    return x if highest is None else x.apply("minimum", highest)


def clamp_highest(x: Scalar, highest: Operand) -> Scalar:
    return clamp(x, None, highest)


def lerp(start: Scalar, end: Scalar, weight: Scalar) -> Scalar:
    """`start + weight * (end - start)`, counted from the nearer end so that weight 1 gives `end`
    exactly, and rounded once behind the difference, as eager's vectors do.
    """
    is_near = weight.apply("abs") < 0.5
    factor = is_near.where(weight, weight - 1)
    base = is_near.where(start, end)
    return factor.apply("fma", end - start, base)


def addcmul(x: Scalar, left: Scalar, right: Scalar, value: Operand = 1) -> Scalar:
    """x + value left right. Eager rounds once behind `value left`, which tells where the sum
    cancels, or where the product alone would be infinite.
    """
    factor = left if value == 1 else left * value
    if x.dtype.is_float:
        return factor.apply("fma", right, x)
    return x + factor * right


def addcdiv(x: Scalar, left: Scalar, right: Scalar, value: Operand = 1) -> Scalar:
    return x + ((left if value == 1 else left * value) / right)


def logical_xor(left: Scalar, right: Scalar) -> Scalar:
    return left.apply("bitwise_xor", right)


def xlogy(x: Scalar, y: Scalar) -> Scalar:
    product = x.apply("eq", 0).where(x.like(0), x * y.apply("log"))
    return y.apply("isnan").where(y, product)


def logaddexp(left: Scalar, right: Scalar) -> Scalar:
    """log(exp(left) + exp(right)); equal infinities give themselves."""
    greater = left.apply("maximum", right)
    gap = (left - right).apply("abs")
    same_infinity = left.apply("isinf") & left.apply("eq", right)
    return same_infinity.where(left, greater + (-gap).apply("exp").apply("log1p"))


def fraction(x: Scalar) -> Scalar:
    return x - x.apply("trunc")


_RESULT: dict[str, Formula] = {
    **{
        f"aten.{name}.default": operation(name)
        for name in words(
            """
            sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
            sinh cosh tanh asinh acosh atanh sigmoid erf erfc lgamma neg maximum minimum atan2 hypot
            nextafter bitwise_not
            """
        )
    },
    **{
        f"aten.{name}.{overload}": operation(name)
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
        for overload in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **{
        f"aten.{name}.{overload}": formula
        for name, formula in {"add": add, "sub": sub, "mul": mul, "div": div, "rsub": rsub}.items()
        for overload in ("Tensor", "Scalar")
    },
    "aten.copysign.Tensor": operation("copysign"),
    "aten.copysign.Scalar": operation("copysign"),
    "aten.abs.default": absolute,
    "aten.fmax.default": ignoring_nan("maximum"),
    "aten.fmin.default": ignoring_nan("minimum"),
    "aten.clamp.default": clamp,
    "aten.clamp.Tensor": clamp,
    "aten.clamp_min.default": clamp,
    "aten.clamp_min.Tensor": clamp,
    "aten.clamp_max.default": clamp_highest,
    "aten.clamp_max.Tensor": clamp_highest,
    "aten.addcmul.default": addcmul,
    "aten.addcdiv.default": addcdiv,
    "aten.lerp.Scalar": lerp,
    "aten.lerp.Tensor": lerp,
    "aten.xlogy.Tensor": xlogy,
    "aten.logaddexp.default": logaddexp,
    "aten.deg2rad.default": lambda x: x * (math.pi / 180),
    "aten.rad2deg.default": lambda x: x * (180 / math.pi),
    "aten.pow.Tensor_Tensor": operation("pow"),
    "aten.pow.Scalar": operation("pow"),
    **activations.FORMULAS,
}

_STORED: dict[str, Formula] = {
    **{
        f"aten.{name}.default": rounded_only_if_float(name)
        for name in ("floor", "ceil", "trunc", "round")
    },
    "aten.sign.default": sign,
    "aten.sgn.default": sign,
    "aten.frac.default": fraction,
    **activations.JUMPING,
}

_PROMOTED: dict[str, Formula] = {
    **{
        f"aten.{name}.{overload}": operation(name)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for overload in ("Tensor", "Scalar")
    },
    "aten.isnan.default": is_nan,
    "aten.isinf.default": is_infinite,
    "aten.isposinf.default": is_one_infinity(math.inf),
    "aten.isneginf.default": is_one_infinity(-math.inf),
    "aten.signbit.default": sign_bit,
}

_LOGICAL: dict[str, Formula] = {
    "aten.logical_and.default": lambda left, right: left & right,
    "aten.logical_or.default": lambda left, right: left | right,
    "aten.logical_xor.default": logical_xor,
    "aten.logical_not.default": lambda x: ~x,
}

ONLY_FOR: dict[str, Callable[[DType], bool]] = {
    # The form of integers raises for some values, as only eager's kernel does.
    "aten.pow.Tensor_Tensor": lambda dtype: dtype.is_float,
    "aten.pow.Scalar": lambda dtype: dtype.is_float,
    # The next number of a half type is not the next one of the type that it is computed in.
    "aten.nextafter.default": lambda dtype: dtype is dtype.compute,
}
"""The results for which an operator's formula is right; others are left to eager's kernel."""


# From formulas to rules ---------------------------------------------------------------------------


def pointwise(
    call: Call, formula: Formula, operands: ComputeType, *arguments: Any, **keywords: Any
) -> Box:
    """The tensor of eager's geometry whose elements are `formula` of the operands' elements,
    broadcast.
    """
    result = call.result
    dtype = _operand_type(result.dtype, operands, (*arguments, *keywords.values()))
    stored = operands is not ComputeType.RESULT
    for argument in (*arguments, *keywords.values()):
        if isinstance(argument, Box):
            call.realise_for_broadcast(argument, result.size)

    def element(at: Position) -> Scalar:
        converted = [operand(call, argument, at, dtype, stored=stored) for argument in arguments]
        named = {
            name: operand(call, value, at, dtype, keyword=True) for name, value in keywords.items()
        }
        if operands is ComputeType.PROMOTED:
            converted = [value.cast(dtype.compute) for value in converted]
        return formula(*converted, **named).cast(result.dtype.compute)

    return call.elementwise(element)


def operand(
    call: Call,
    argument: Any,
    at: Position,
    dtype: DType,
    *,
    keyword: bool = False,
    stored: bool = False,
) -> Any:
    """A box's element, or a number, in type `dtype`. Keywords (`alpha`) stay Python numbers;
    `stored`: the element is rounded as eager has it in memory.
    """
    match argument:
        case Box():
            return (call.stored if stored else call.read)(argument, at, dtype)
        case Index():
            return call.index(argument, dtype)
        case Real():
            return call.real(argument, dtype)
        case bool() | int() | float() if not keyword:
            return call.number(argument, dtype)
    return argument


def _operand_type(result: DType, operands: ComputeType, arguments: tuple[Any, ...]) -> DType:
    match operands:
        case ComputeType.RESULT | ComputeType.STORED:
            return result.compute
        case ComputeType.LOGICAL:
            return DType.BOOL
        case ComputeType.PROMOTED:
            typed = [
                0.0 if isinstance(a, Real) else a
                for a in arguments
                if isinstance(a, (Box, Index, Real, bool, int, float))
            ]
            return result_type(typed)


def _rule_of(name: str, formula: Formula, operands: ComputeType) -> Rule:
    applies = ONLY_FOR.get(name)

    def lowered(call: Call, *arguments: Any, **keywords: Any) -> Any:
        if applies is not None and not applies(call.result.dtype):
            return NotImplemented
        return pointwise(call, formula, operands, *arguments, **keywords)

    return lowered


for _table, _operands in (
    (_RESULT, ComputeType.RESULT),
    (_STORED, ComputeType.STORED),
    (_PROMOTED, ComputeType.PROMOTED),
    (_LOGICAL, ComputeType.LOGICAL),
):
    for _name, _formula in _table.items():
        rule(_name)(_rule_of(_name, _formula, _operands))


# Rules that look at their arguments first ---------------------------------------------------------


@rule("aten.where.self")
def where(call: Call, condition: Box, chosen: Any, otherwise: Any) -> Box:
    return _select(call, condition, chosen, otherwise)


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(call: Call, x: Box, mask: Box, value: Any) -> Box:
    return _select(call, mask, value, x)


def _select(call: Call, condition: Box, chosen: Any, otherwise: Any) -> Box:
    result = call.result
    for argument in (condition, chosen, otherwise):
        if isinstance(argument, Box):
            call.realise_for_broadcast(argument, result.size)

    def element(at: Position) -> Scalar:
        dtype = result.dtype.compute
        holds = call.read(condition, at, DType.BOOL)
        return holds.where(operand(call, chosen, at, dtype), operand(call, otherwise, at, dtype))

    return call.elementwise(element)


@rule("aten.pow.Tensor_Scalar")
def power(call: Call, x: Box, exponent: int | float) -> Any:
    """Small exponents are products and roots, as eager computes them."""
    formula = _POWERS.get(exponent) if isinstance(exponent, (int, float)) else None
    dtype = call.result.dtype
    if formula is not None and (dtype.is_float or exponent in (0, 1, 2, 3)):
        return pointwise(call, formula, ComputeType.RESULT, x)
    if not dtype.is_float:
        return NotImplemented
    return pointwise(call, operation("pow"), ComputeType.RESULT, x, exponent)


_POWERS: dict[int | float, Formula] = {
    0: lambda x: x.like(1),
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: operation("sqrt"),
    -0.5: operation("rsqrt"),
    -1: operation("reciprocal"),
    -2: lambda x: (x * x).apply("reciprocal"),
}


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def rounded_division(call: Call, left: Any, right: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return pointwise(call, div, ComputeType.RESULT, left, right)
    if rounding_mode == "trunc" and _is_rounded_first(call, right):
        return pointwise(
            call, partial(_trunc_of_rounded, call.result.dtype), ComputeType.STORED, left, right
        )
    name = {"floor": "floor_div", "trunc": "trunc_div"}[rounding_mode]
    return _integer_safe(call, name, left, right)


def _is_rounded_first(call: Call, divisor: Any) -> bool:
    """Whether eager rounds the quotient to a half type before it cuts it off: where the divisor is
    more than one number.
    """
    dtype = call.result.dtype
    is_half = dtype.is_float and dtype is not dtype.compute
    return is_half and isinstance(divisor, Box) and any(size != 1 for size in divisor.size)


def _trunc_of_rounded(dtype: DType, left: Any, right: Any) -> Any:
    return div(left, right).cast(dtype).cast(dtype.compute).apply("trunc")


@rule("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(call: Call, left: Any, right: Any) -> Any:
    return _integer_safe(call, "floor_div", left, right)


@rule("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(call: Call, left: Any, right: Any) -> Any:
    return _integer_safe(call, "remainder", left, right)


@rule("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(call: Call, left: Any, right: Any) -> Any:
    return _integer_safe(call, "fmod", left, right)


def _integer_safe(call: Call, name: str, left: Any, right: Any) -> Any:
    """Division of integers by a known positive number; by anything that may be zero, eager raises
    and we let it.
    """
    if not call.result.dtype.is_float:
        divisor = right.lower if isinstance(right, Index) else right
        if isinstance(right, Box) or not isinstance(divisor, int) or divisor <= 0:
            return NotImplemented
    return pointwise(call, operation(name), ComputeType.STORED, left, right)


@rule(
    *(
        f"aten.{name}.{overload}"
        for name in ("bitwise_left_shift", "bitwise_right_shift")
        for overload in ("Tensor", "Tensor_Scalar")
    ),
    *(
        f"aten.{name}.{overload}"
        for name in ("__lshift__", "__rshift__")
        for overload in ("Tensor", "Scalar")
    ),
)
def shift(call: Call, left: Box, right: Any) -> Any:
    """Shift by a known number of bits less than the width; others have no meaning in C, and eager
    decides.
    """
    if not isinstance(right, int) or not 0 <= right < call.result.dtype.bits:
        return NotImplemented
    name = "shift_left" if "left" in call.operator or "lshift" in call.operator else "shift_right"
    if not call.result.dtype.is_integer:
        return NotImplemented
    return pointwise(call, operation(name), ComputeType.RESULT, left, right)


# Copies and conversions ---------------------------------------------------------------------------


@rule("aten._to_copy.default")
def to_copy(call: Call, x: Box, **options: Any) -> Any:
    """Convert as the user says, and round here, even if the next operator computes in f32 again."""
    if x.device != call.result.device or options.get("pin_memory"):
        return NotImplemented
    dtype = call.result.dtype
    if dtype is x.dtype:
        return clone(call, x)
    read = call.read if dtype.is_float else call.stored
    return call.elementwise(lambda at: read(x, at).cast(dtype))


@rule("aten.clone.default")
def clone(call: Call, x: Box, *, memory_format: Any = None) -> Box:
    return call.elementwise(lambda at: call.raw(x, at))


@rule("aten.fill.Scalar", "aten.fill.Tensor")
def fill(call: Call, x: Box, value: Any) -> Box:
    return call.elementwise(lambda at: operand(call, value, at, x.dtype.compute))


@rule("aten.copy.default")
def copy(call: Call, x: Box, source: Box, non_blocking: bool = False) -> Box:
    """`source` with the type and sizes of `x`."""
    return call.elementwise(lambda at: call.read(source, at, x.dtype.compute))
