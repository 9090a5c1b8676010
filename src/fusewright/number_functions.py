"""Functions of real numbers that a program computes on its way, which are no tensors: one table for
compiled code, guards and packages. It imports nothing, so that loading a package is quick.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

FUNCTIONS_OF_ONE = (
    "sqrt", "fabs", "floor", "trunc", "rint", "exp", "expm1", "log", "log1p", "log2", "log10",
    "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan",
)  # fmt: skip
"""Functions of one real number, named as in C; in the order of native/guard_sizes.c."""

NUMBER_FUNCTIONS: dict[str, Callable[..., float]] = {
    "float": float,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "pow": operator.pow,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "neg": operator.neg,
    "min": min,
    "max": max,
    "atan2": math.atan2,
    "copysign": math.copysign,
    "fmod": math.fmod,
    **{name: getattr(math, name) for name in FUNCTIONS_OF_ONE if name != "rint"},
    "floor": lambda number: float(math.floor(number)),
    "trunc": lambda number: float(math.trunc(number)),
    "rint": lambda number: float(round(number)),
}
"""By name, what computes a real number from numbers, as the program's own Python does."""
