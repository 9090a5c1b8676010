"""NumPy under capture: its functions of known numbers are computed while tracing. Arrays, and
functions that make or change them, break the graph.
"""

from __future__ import annotations

from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import handles
from fusewright.capture.values.base import (
    Machine,
    NotConstant,
    Value,
    evaluate,
    known_arguments,
)
from fusewright.capture.values.constant import NUMPY_SCALARS, SCALAR_TYPES
from fusewright.capture.values.functions import function_name

try:
    import numpy
except ImportError:  # torch runs without
    numpy = None  # type: ignore[assignment]

NUMBERS_TO_NUMBER: Final = frozenset(
    {
        "all", "allclose", "amax", "amin", "any", "argmax", "argmin", "average", "count_nonzero",
        "dot", "isclose", "max", "mean", "median", "min", "ndim", "prod", "ptp", "round", "size",
        "std", "sum", "trace", "var",
    }
)  # fmt: skip
"""Functions of NumPy that compute a number and change nothing."""


def _call(machine: Machine, function: Value, /, *arguments: Value, **keywords: Value) -> Value:
    """A call of a NumPy function: made for real when it computes one number from known ones."""
    real = function.real()
    try:
        if not isinstance(real, numpy.ufunc) and real.__name__ not in NUMBERS_TO_NUMBER:
            raise NotConstant(function)
        values, named = known_arguments(machine, arguments, keywords)
    except NotConstant:
        raise _refusal(machine, real) from None
    result = evaluate(machine, real, *values, **named)
    if type(result) not in NUMPY_SCALARS and type(result) not in SCALAR_TYPES:
        raise _refusal(machine, real)
    return machine.new(result)


def _refusal(machine: Machine, function: Any) -> Exception:
    return machine.unsupported(reasons.UNKNOWN_CALLABLE, function=function_name(function))


if numpy is not None:
    handles(numpy.ufunc.__call__, type(numpy.prod).__call__)(_call)
