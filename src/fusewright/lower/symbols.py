"""The symbolic sizes of one graph, as index expressions."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fusewright.ir.index import Index, SizeFact, integer
from fusewright.symbolic.nodes import index_of

Size = int | torch.SymInt


class SizeTable:
    """The symbols that one graph's sizes are made of, each with its range and the size seen when
    compiling.
    """

    def __init__(self) -> None:
        self.facts: dict[str, SizeFact] = {}

    def index(self, size: Size) -> Index:
        """`size` as an index expression."""
        if isinstance(size, int):
            return integer(int(size))
        index = index_of(size)
        for fact in size.node.facts.size_facts(index):
            self.facts.setdefault(fact.symbol.name, fact)
        return index

    def indices(self, sizes: Iterable[Size]) -> tuple[Index, ...]:
        return tuple(self.index(size) for size in sizes)


def hint(index: Index, facts: dict[str, SizeFact]) -> int:
    """The value of a size for the sizes seen when compiling; for profitability only."""
    if index.is_constant:
        return index.constant
    return index.evaluate({name: fact.hint for name, fact in facts.items()})
