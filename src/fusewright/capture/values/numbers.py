"""Numbers that are symbols, or computed from symbols: sizes that vary, integers that vary.

Arithmetic on them stays symbolic, a comparison is decided and assumed, and whatever has to know the
number itself makes it a constant, which is assumed to stay so.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import torch

from fusewright.capture.sources import Source
from fusewright.capture.values.base import Rebuilder, Value
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.sequences import SequenceValue
from fusewright.symbolic.functions import IN_PYTHON
from fusewright.symbolic.nodes import SYMBOLIC, free_symbols, indicator

Number = Any
"""`torch.SymInt` or `torch.SymFloat`, or a plain number where it turned out to be known."""


class SymbolicValue(ConstantValue):
    """A number that is not known when compiling. Whoever takes it for a constant makes it one."""

    __slots__ = ("_indicator", "_make", "_number")

    def __init__(
        self,
        number: Number = None,
        source: Source | None = None,
        make: Callable[[], Number] | None = None,
    ) -> None:
        super().__init__(None, source)
        self._number = number
        self._make = make
        self._indicator: SymbolicValue | None = None

    @property
    def number(self) -> Number:
        """The symbolic number. One that was read from somewhere becomes a symbol when it is first
        looked at.
        """
        if self._make is not None:
            make, self._make = self._make, None
            self._number = make()
        return self._number

    @property
    def value(self) -> Any:
        number = self.number
        if isinstance(number, bool | torch.SymBool):
            return bool(number)
        return float(number) if isinstance(number, float | torch.SymFloat) else int(number)

    @property
    def is_unread(self) -> bool:
        return self._make is not None

    def python_type(self) -> type:
        if isinstance(self.number, bool | torch.SymBool):
            return bool
        return float if isinstance(self.number, float | torch.SymFloat) else int

    @property
    def is_of_data(self) -> bool:
        """Whether it depends on the values of tensors, so that the graph has to give it."""
        return isinstance(self.number, SYMBOLIC) and is_of_data(self.number)

    @property
    def is_result(self) -> bool:
        """Whether the graph gives it as it is."""
        return self.is_of_data and self.indicator is None

    @property
    def indicator(self) -> SymbolicValue | None:
        """1 or 0, which a graph computes in place of a condition that depends on data."""
        if self._indicator is None and self.is_of_data and isinstance(self.number, torch.SymBool):
            self._indicator = SymbolicValue(indicator(self.number))
        return self._indicator

    def key(self) -> Hashable:
        key: Hashable = self.value
        return key

    def parts(self) -> Sequence[Value]:
        return () if self.indicator is None else (self.indicator,)

    def rebuild(self, code: Rebuilder) -> None:
        if self.indicator is not None:
            code.call(bool, self.indicator)
        elif self.is_of_data:
            code.tensor(self)
        else:
            code.number(self.number)

    def describe(self) -> str:
        return "a number that varies"


def is_of_data(number: Any) -> bool:
    """Whether a symbolic number depends on the values of tensors."""
    return any(map(number.node.facts.is_of_data, free_symbols(number)))


def is_number(value: Value) -> bool:
    """Whether a value is a symbolic number, or a constant one."""
    if isinstance(value, SymbolicValue):
        return True
    return isinstance(value, ConstantValue) and type(value.value) in (int, float, bool)


def has_symbols(values: Sequence[Value]) -> bool:
    """Whether there is a symbolic number among `values`, or directly in a sequence there, all of
    whose items were read.
    """
    return any(
        type(value) is SymbolicValue
        or (isinstance(value, SequenceValue) and has_symbols(value.read_items()))
        for value in values
    )


def number_of(value: Value) -> Any:
    """The operand that torch and Python's own operators compute with. Raises NotConstant."""
    if isinstance(value, SequenceValue):
        return [number_of(item) for item in value.read_items()]
    return value.number if isinstance(value, SymbolicValue) else value.to_python()


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    **{
        function: function
        for function in (
            abs, builtins.sum, builtins.max, builtins.min, math.floor, math.ceil, math.prod,
            operator.index, torch.sym_max, torch.sym_min, torch.sym_float, torch.sym_int,
        )
    },
    **dict.fromkeys((operator.index, int.__index__, int.__int__), lambda number: number),
    int: torch.sym_int,
    float: torch.sym_float,
    math.trunc: torch.sym_int,
    **IN_PYTHON,
}  # fmt: skip
"""Functions that keep numbers symbolic, and what computes them."""
