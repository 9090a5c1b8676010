"""The symbolic sizes of one graph, as index expressions."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fusewright.ir.index import Index, SizeFact, integer
from fusewright.symbolic.nodes import free_symbols, index_of
from fusewright.symbolic.real import Real

Size = int | torch.SymInt


class SizeTable:
    """The symbols that one graph's sizes are made of, each with its range and the size seen when
    compiling.
    """

    def __init__(self) -> None:
        self.facts: dict[str, SizeFact] = {}
        self.unknown: dict[str, None] = {}
        """Names of sizes that depend on data and that no statement has found out yet."""

    def index(self, size: Size) -> Index:
        """`size` as an index expression."""
        if isinstance(size, int):
            return integer(int(size))
        index = index_of(size)
        self._add(size)
        return index

    def real(self, number: torch.SymFloat) -> Real | float:
        """A real number computed from sizes."""
        self._add(number)
        node = number.node
        return (
            node.number if isinstance(node.number, float) else node.number.map(node.facts.resolve)
        )

    def _add(self, number: torch.SymInt | torch.SymFloat) -> None:
        facts = number.node.facts
        for symbol in free_symbols(number):
            for fact in facts.size_facts(symbol.index):
                if fact.symbol.name not in self.facts and facts.is_of_data(fact.symbol):
                    self.unknown[fact.symbol.name] = None
                self.facts.setdefault(fact.symbol.name, fact)

    def indices(self, sizes: Iterable[Size]) -> tuple[Index, ...]:
        return tuple(self.index(size) for size in sizes)


def hint(index: Index, facts: dict[str, SizeFact]) -> int:
    """The value of a size for the sizes seen when compiling; for profitability only."""
    if index.is_constant:
        return index.constant
    return index.evaluate({name: fact.hint for name, fact in facts.items()})
