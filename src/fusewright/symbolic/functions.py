"""Python's functions of real numbers, such as `math.exp`, on symbolic numbers and plain ones."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from fusewright.ir.index import integer
from fusewright.number_functions import FUNCTIONS_OF_ONE, NUMBER_FUNCTIONS
from fusewright.symbolic.nodes import SYMBOLIC, symbolic_float
from fusewright.symbolic.real import Operand, Real, evaluate, free_in_real

Function = Callable[..., Any]


def _function(name: str) -> Function:
    """The function `name` of `NUMBER_FUNCTIONS`; of a symbolic number it is an expression. Raises
    what Python does for the numbers seen when compiling.
    """
    plain = NUMBER_FUNCTIONS[name]

    def compute(*numbers: Any) -> Any:
        facts = next(
            (number.node.facts for number in numbers if isinstance(number, SYMBOLIC)), None
        )
        if facts is None:
            return plain(*numbers)
        real = Real(name, tuple(map(_operand, numbers)))
        if not any(map(facts.is_of_data, free_in_real(real))):
            evaluate(real, facts.hints)
        return symbolic_float(facts, real)

    compute.__name__ = compute.__qualname__ = name
    return compute


def _operand(number: Any) -> Operand:
    match number:
        case torch.SymInt():
            return number.node.index  # type: ignore[no-any-return]
        case torch.SymFloat():
            return number.node.number  # type: ignore[no-any-return]
        case int():
            return integer(number)
    return float(number)


FUNCTIONS: Final[dict[str, Function]] = {
    name: _function(name) for name in (*FUNCTIONS_OF_ONE, "floordiv", "atan2", "copysign", "fmod")
}
"""Functions of numbers by name, which stand in graphs."""


def _logarithm(number: Any, *base: Any) -> Any:
    logarithm = FUNCTIONS["log"](number)
    return logarithm / FUNCTIONS["log"](*base) if base else logarithm


def _floor_divide(left: Any, right: Any) -> Any:
    is_real = isinstance(left, torch.SymFloat | float) or isinstance(right, torch.SymFloat | float)
    return FUNCTIONS["floordiv"](left, right) if is_real else left // right


IN_PYTHON: Final[dict[Any, Function]] = {
    **{
        getattr(math, name): function
        for name, function in FUNCTIONS.items()
        if name not in ("floor", "trunc", "rint", "floordiv")
    },
    operator.floordiv: _floor_divide,
    divmod: lambda left, right: (_floor_divide(left, right), left % right),
    math.log: _logarithm,
    math.pow: lambda base, exponent: torch.sym_float(base) ** torch.sym_float(exponent),
    math.degrees: lambda angle: angle * (180 / math.pi),
    math.radians: lambda angle: angle * (math.pi / 180),
    math.isnan: lambda number: number != number,
    math.isinf: lambda number: FUNCTIONS["fabs"](number) == math.inf,
    math.isfinite: lambda number: FUNCTIONS["fabs"](number) < math.inf,
    float.is_integer: lambda number: number == FUNCTIONS["floor"](number),
}
"""By function of Python's, the one that computes it of symbolic numbers."""
