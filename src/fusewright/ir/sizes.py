"""The symbols of a program: sizes and other integers, and real numbers."""

from __future__ import annotations

from fusewright.ir.index import SizeSymbol, Symbol
from fusewright.ir.intervals import Bound
from fusewright.records import record


@record
class SizeFact:
    """A size symbol with its range, and the size seen when compiling (for profitability only)."""

    symbol: Symbol
    hint: int | float


def size_symbol(name: str, lower: Bound = 2, upper: Bound = None, multiple: int = 1) -> SizeSymbol:
    """A symbolic size. Sizes 0 and 1 are specialised, hence the lower bound."""
    return SizeSymbol(name, lower, upper, multiple)
