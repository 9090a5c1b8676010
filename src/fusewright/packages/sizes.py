"""Relations between the sizes of a call's arguments, as data, and whether they hold."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}

HOLDS: Final[dict[str, Callable[[int], bool]]] = {
    "== 0": lambda number: number == 0,
    "!= 0": lambda number: number != 0,
    ">= 0": lambda number: number >= 0,
}
"""Relations of a difference of sizes to zero, by name."""

Number = int | str | list[Any]
"""An integer; a symbol's name; or a list of an operation and what it is of."""


def evaluate(number: Number, symbols: Mapping[str, int]) -> int:
    """The number, for these sizes."""
    if isinstance(number, int):
        return number
    if isinstance(number, str):
        return symbols[number]
    name, *rest = number
    values = [evaluate(operand, symbols) for operand in rest]
    if name == "+":
        return sum(values)
    if name == "*":
        product = 1
        for value in values:
            product *= value
        return product
    return OPERATIONS[name](*values)
