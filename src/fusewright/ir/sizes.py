"""The symbols of a program: sizes and other integers, and real numbers."""

from __future__ import annotations

from fusewright.ir.index import Symbol
from fusewright.ir.intervals import Bound
from fusewright.records import record


@record
class SizeFact:
    """What is known of one size symbol: its range, and the size seen when compiling (for
    profitability only).
    """

    symbol: Symbol
    hint: int | float


def size_symbol(name: str, lower: Bound = 2, upper: Bound = None, multiple: int = 1) -> Symbol:
    """A symbolic size. Sizes 0 and 1 are specialised, hence the lower bound."""
    return Symbol(name, lower, upper, multiple)


def real_symbol(name: str) -> Symbol:
    """A real number that varies: `f` and a number. It takes part in no index arithmetic; as a value
    it has type f64, and machine code is passed the 64 bits of its double.
    """
    return Symbol(name)


def is_real(symbol: Symbol) -> bool:
    """Whether a symbol stands for a real number."""
    return symbol.name.startswith("f")
