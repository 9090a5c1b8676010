"""The symbolic sizes of one graph, as index expressions."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fusewright.ir.index import Index, RealSymbol, Symbol, integer
from fusewright.ir.sizes import SizeFact
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import free_symbols, index_of
from fusewright.symbolic.real import Operand, Real, evaluate, free_in_real, with_indices

Size = int | torch.SymInt


class SizeTable:
    """The symbols that one graph's sizes are made of, each with its range and the size seen when
    compiling.
    """

    def __init__(self) -> None:
        self.facts: dict[str, SizeFact] = {}
        self.unknown: dict[str, None] = {}
        """Names of sizes that depend on data and that no statement has found out yet."""

        self._numbers = ShapeFacts()
        """The numbers from which real numbers are computed."""

    def index(self, size: Size) -> Index:
        """`size` as an index expression."""
        if isinstance(size, int):
            return integer(int(size))
        index = index_of(size)
        self._add(size.node.facts, free_symbols(size))
        return index

    def real(self, number: torch.SymFloat) -> Real | float:
        """A real number that varies, or is computed from numbers that do."""
        self._numbers = number.node.facts
        resolved = with_indices(number.node.number, self._numbers.resolve)
        return resolved if isinstance(resolved, float | Real) else Real("float", (resolved,))

    def new_real(self, number: Operand, symbol: RealSymbol | None = None) -> RealSymbol:
        """The symbol of a real number that the program is given or computes, by default a new
        one.
        """
        place = len(self.facts)
        while f"f{place}" in self.facts:
            place += 1
        symbol = symbol or RealSymbol(f"f{place}")
        self.facts.setdefault(symbol.name, SizeFact(symbol, self._hint(number)))
        return symbol

    def _hint(self, number: Operand) -> float:
        """The number for what was seen when compiling, and for likely sizes where those depend on
        data; 1 where it is undefined for those.
        """
        facts = self._numbers
        likely = {
            fact.symbol.name: fact.hint
            for symbol in free_in_real(number)
            if facts.is_of_data(symbol)
            for fact in facts.size_facts(symbol.index)
        }
        try:
            return evaluate(number, {**facts.hints, **likely})
        except (ArithmeticError, ValueError):
            return 1.0

    def use(self, number: Index) -> Index:
        """`number`, which is read to compute a real number."""
        self._add(self._numbers, number.free())
        return number

    def _add(self, facts: ShapeFacts, symbols: Iterable[Symbol]) -> None:
        for symbol in symbols:
            for fact in facts.size_facts(symbol.index):
                if fact.symbol.name not in self.facts and facts.is_of_data(fact.symbol):
                    self.unknown[fact.symbol.name] = None
                self.facts.setdefault(fact.symbol.name, fact)

    def indices(self, sizes: Iterable[Size]) -> tuple[Index, ...]:
        return tuple(self.index(size) for size in sizes)


def real_input(number: torch.SymFloat, position: int) -> RealSymbol:
    """The symbol of a real number that a graph is given at this position, whole, where forward has
    computed it for backward.
    """
    real = number.node.number
    return real if isinstance(real, RealSymbol) else RealSymbol(f"f_{position}")


def hint(index: Index, facts: dict[str, SizeFact]) -> int:
    """The value of a size for the sizes seen when compiling; for profitability only."""
    if index.is_constant:
        return index.constant
    return index.evaluate({name: fact.hint for name, fact in facts.items()})
