"""Which arguments of a traced graph hold the sizes and tensors that its program takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fusewright.errors import Unsupported
from fusewright.ir.index import Index
from fusewright.ir.program import Program
from fusewright.lower.symbols import SizeTable, real_input
from fusewright.runtime.calling import CallingOrder, SizeSource


def calling_order(placeholders: Sequence[fx.Node], program: Program) -> CallingOrder:
    """The order for `program`, which was lowered from a graph with these placeholders.

    Raises: Unsupported, for a size that no argument gives, alone or as the size of a tensor.
    """
    values = [node.meta["val"] for node in placeholders]
    sizes = program.input_sizes
    known = _size_sources(values) if sizes else {}
    missing = [fact.symbol.name for fact in sizes if fact.symbol.index not in known]
    if missing:
        raise Unsupported(
            f"the size {missing[0]} is neither an argument nor the size of one",
            remedy="mark the dimension static",
        )
    return CallingOrder(
        sizes=tuple(known[fact.symbol.index] for fact in sizes),
        tensors=tuple(p for p, value in enumerate(values) if isinstance(value, torch.Tensor)),
        arguments=len(values),
    )


def _size_sources(values: Sequence[Any]) -> dict[Index, SizeSource]:
    """The first place where each size expression stands among the arguments."""
    table = SizeTable()
    found: dict[Index, SizeSource] = {}
    for position, value in enumerate(values):
        if isinstance(value, torch.SymInt):
            found.setdefault(table.index(value), SizeSource(position))
        elif isinstance(value, torch.SymFloat):
            found.setdefault(real_input(value, position).index, SizeSource(position))
    for position, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            for dimension, size in enumerate(table.indices(value.shape)):
                found.setdefault(size, SizeSource(position, dimension))
    return found
