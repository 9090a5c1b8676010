"""Real numbers computed from sizes, such as `1 / sqrt(n)`: expressions that are only computed,
never reasoned about.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusewright.ir.index import Index, Symbol

FUNCTIONS: dict[str, Callable[..., float]] = {
    "float": float,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "pow": operator.pow,
    "mod": operator.mod,
    "neg": operator.neg,
    "sqrt": math.sqrt,
    "min": min,
    "max": max,
}
"""By operator, what computes it."""


@dataclass(frozen=True, slots=True)
class Real:
    """`operator(*operands)`; an operand is an `Index`, another `Real`, or a float."""

    operator: str
    operands: tuple[Index | Real | float, ...]

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(str, self.operands))})"

    def evaluate(self, values: Mapping[str, int]) -> float:
        """The number for given values of all symbols, by name."""
        numbers = [one if isinstance(one, float) else one.evaluate(values) for one in self.operands]
        return FUNCTIONS[self.operator](*numbers)

    def map(self, function: Callable[[Index], Index]) -> Real:
        """The same number with each index replaced by what `function` makes of it."""
        operands: list[Index | Real | float] = []
        for one in self.operands:
            match one:
                case Index():
                    operands.append(function(one))
                case Real():
                    operands.append(one.map(function))
                case _:
                    operands.append(one)
        return Real(self.operator, tuple(operands))

    def bounds(self) -> tuple[float, float]:
        """Inclusive bounds that hold for all values of the symbols."""
        rule = _BOUNDS.get(self.operator)
        return rule(*map(_bounds, self.operands)) if rule else EVERYTHING

    def free(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        return frozenset().union(
            *(one.free() for one in self.operands if not isinstance(one, float))
        )


Bounds = tuple[float, float]

EVERYTHING = (-math.inf, math.inf)


def _bounds(operand: Index | Real | float) -> Bounds:
    if isinstance(operand, float):
        return operand, operand
    lower, upper = operand.bounds()
    return (-math.inf if lower is None else lower), (math.inf if upper is None else upper)


def _of_corners(function: Callable[[float, float], float], left: Bounds, right: Bounds) -> Bounds:
    """The bounds of a function that is monotonous in both operands."""
    corners = [function(a, b) for a in left for b in right]
    return EVERYTHING if any(map(math.isnan, corners)) else (min(corners), max(corners))


def _quotient(left: Bounds, right: Bounds) -> Bounds:
    if right[0] <= 0 <= right[1]:
        return EVERYTHING
    return _of_corners(operator.truediv, left, right)


def _power(base: Bounds, exponent: Bounds) -> Bounds:
    """Of a base that is not negative, to a known power."""
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
