"""Reductions by their operation of two values: what it is, and its neutral element, which changes
no result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.value import Number


def neutral(kind: str, dtype: DType) -> Number:
    """The element that changes no result of `kind`."""
    return NEUTRAL_ELEMENTS[kind](dtype)


def _lowest(dtype: DType) -> Number:
    if dtype.is_float:
        return -inf
    return -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0


def _highest(dtype: DType) -> Number:
    if dtype.is_float:
        return inf
    if dtype is DType.BOOL:
        return True
    return (1 << (dtype.bits - (dtype.kind == "signed"))) - 1


NEUTRAL_ELEMENTS: Final[Mapping[str, Callable[[DType], Number]]] = {
    "sum": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "any": lambda dtype: False,
    "all": lambda dtype: True,
    "xor": lambda dtype: 0,
    "max": _lowest,
    "min": _highest,
}
"""By kind of reduction; those that are not here have none."""

COMBINATIONS: Final[Mapping[str, str]] = {
    "sum": "add",
    "prod": "mul",
    "any": "bitwise_or",
    "all": "bitwise_and",
    "xor": "bitwise_xor",
    "max": "maximum",
    "min": "minimum",
}
"""The operations that put results of parts together, by the same."""
