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

    def free(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        return frozenset().union(
            *(one.free() for one in self.operands if not isinstance(one, float))
        )
