"""Real numbers that vary, or are computed from numbers that do, such as `1 / sqrt(n)`: expressions
that are only computed, hardly reasoned about.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from fusewright.ir.index import Index, RealSymbol, Symbol
from fusewright.number_functions import NUMBER_FUNCTIONS
from fusewright.records import record


@record
class Real:
    """`operator(*operands)`."""

    operator: str
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(str, self.operands))})"


Operand = Index | Real | RealSymbol | float
"""A `RealSymbol` is a real number as it is read; an `Index` an integer."""

Bounds = tuple[float, float]

EVERYTHING = (-math.inf, math.inf)


def evaluate(number: Operand, values: Mapping[str, float]) -> int | float:
    """The number for given values of all symbols, by name. Raises what Python's operators do."""
    match number:
        case float():
            return number
        case RealSymbol(name=name):
            return values[name]
        case Index():
            return number.evaluate(values)
    return NUMBER_FUNCTIONS[number.operator](
        *(evaluate(operand, values) for operand in number.operands)
    )


def with_indices(number: Operand, function: Callable[[Index], Index]) -> Operand:
    """A number with each index in it replaced by what `function` makes of that."""
    match number:
        case Index():
            return function(number)
        case Real(operator, operands):
            return Real(operator, tuple([with_indices(operand, function) for operand in operands]))
    return number


def renamed(number: Operand, names: Mapping[Symbol, Symbol]) -> Operand:
    """A number with each symbol replaced by the one that `names` has for it."""
    match number:
        case RealSymbol():
            return RealSymbol(names[number].name)
        case Index():
            return number.substitute({old: new.index for old, new in names.items()})
        case Real(operator, operands):
            return Real(operator, tuple([renamed(operand, names) for operand in operands]))
    return number


def free_in_real(number: Operand) -> frozenset[Symbol]:
    """The symbols that occur in a number."""
    match number:
        case float():
            return frozenset()
        case RealSymbol():
            return frozenset((number,))
        case Index():
            return number.free()
    return frozenset().union(*map(free_in_real, number.operands))


def bounds(number: Operand) -> Bounds:
    """Inclusive bounds that hold for all values of the symbols, none of which is NaN."""
    match number:
        case float():
            return number, number
        case RealSymbol():
            return EVERYTHING
        case Index():
            lower, upper = number.bounds()
            return (-math.inf if lower is None else lower), (math.inf if upper is None else upper)
    rule = _BOUNDS.get(number.operator)
    return rule(*map(bounds, number.operands)) if rule else EVERYTHING


def _of_corners(function: Callable[[float, float], float], left: Bounds, right: Bounds) -> Bounds:
    """The bounds of a function that is monotonous in both operands."""
    corners = [function(a, b) for a in left for b in right]
    return EVERYTHING if any(map(math.isnan, corners)) else (min(corners), max(corners))


def _quotient(left: Bounds, right: Bounds) -> Bounds:
    if right[0] <= 0 <= right[1]:
        return EVERYTHING
    return _of_corners(operator.truediv, left, right)


def _power(base: Bounds, exponent: Bounds) -> Bounds:
    """Bounds of a power, if the base is not negative and the exponent is known."""
    if base[0] < 0 or exponent[0] != exponent[1] or exponent[0] < 0:
        return EVERYTHING
    return base[0] ** exponent[0], base[1] ** exponent[0]


_BOUNDS: dict[str, Callable[..., Bounds]] = {
    "float": lambda operand: operand,
    "add": lambda left, right: (left[0] + right[0], left[1] + right[1]),
    "sub": lambda left, right: (left[0] - right[1], left[1] - right[0]),
    "mul": lambda left, right: _of_corners(operator.mul, left, right),
    "truediv": _quotient,
    "pow": _power,
    "neg": lambda operand: (-operand[1], -operand[0]),
    "sqrt": lambda operand: _power(operand, (0.5, 0.5)),
}
"""By operator, the bounds of the result for bounds of the operands."""


def quotient_by_zero(dividend: float, zero: float) -> float:
    """The quotient of IEEE 754 by a zero of either sign, such as the degrees of freedom that a
    variance has left.
    """
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, zero)
