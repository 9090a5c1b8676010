"""The arguments of a traced graph that hold the numbers and tensors that its program takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.errors import Unsupported
from fusewright.ir.index import Index
from fusewright.ir.program import Program
from fusewright.lower.symbols import SizeTable, real_input
from fusewright.opaque import BUFFERS
from fusewright.runtime.calling import CallingOrder, SymbolSource

Place = tuple[int, int | None, bool]
"""A position among the arguments, there a dimension of a tensor, and whether its stride is read."""


def calling_order(placeholders: Sequence[fx.Node], program: Program) -> CallingOrder:
    """The order for `program`, which was lowered from a graph with these placeholders.

    Raises: Unsupported, for a size that follows from no argument, nor from the sizes and strides of
    one.
    """
    values = [node.meta["val"] for node in placeholders]
    symbols = tuple(fact.symbol.name for fact in program.input_sizes)
    return CallingOrder(
        symbols=symbols,
        numbers=tuple(_sources(values, set(symbols))),
        tensors=tuple(p for p, value in enumerate(values) if isinstance(value, BUFFERS)),
        arguments=len(values),
    )


def _sources(values: Sequence[Any], wanted: set[str]) -> Iterator[SymbolSource]:
    """The source of each of the symbols, those first on which others depend."""
    solved: set[str] = set()
    waiting = [number for number in _numbers(values) if number[0].free()] if wanted else []
    while not wanted <= solved:
        source = next(filter(None, (_source(*number, solved) for number in waiting)), None)
        if source is None:
            name = min(wanted - solved)
            raise Unsupported(
                f"the size {name} is no argument, and follows from the size of none",
                remedy="mark the dimension static",
            )
        solved.add(source.symbol)
        yield source


def _numbers(values: Sequence[Any]) -> Iterator[tuple[Index, Place]]:
    """Each number among the arguments, and where it stands: numbers before sizes before strides,
    last those of dimensions of one element or none, which may be any.
    """
    table = SizeTable()
    for position, value in enumerate(values):
        if isinstance(value, torch.SymInt):
            yield table.index(value), (position, None, False)
        elif isinstance(value, torch.SymFloat):
            yield real_input(value, position).index, (position, None, False)
    tensors = [(p, value) for p, value in enumerate(values) if isinstance(value, torch.Tensor)]
    unused = []
    for is_stride in (False, True):
        for position, tensor in tensors:
            sizes = table.indices(tensor.shape)
            extents = table.indices(tensor.stride()) if is_stride else sizes
            for dimension, index in enumerate(extents):
                number = index, (position, dimension, is_stride)
                if is_stride and (sizes[dimension].lower or 0) < 2:
                    unused.append(number)
                else:
                    yield number
    yield from unused


def _source(index: Index, place: Place, solved: set[str]) -> SymbolSource | None:
    """The source of the one symbol in a number that has none yet, computed from that number."""
    unknown = [symbol for symbol in index.free() if symbol.name not in solved]
    if len(unknown) != 1:
        return None
    (symbol,) = unknown
    if index == symbol.index:
        return SymbolSource(symbol.name, *place)
    factor = index.stride(symbol)
    if factor is None or factor == 0:
        return None
    return SymbolSource(symbol.name, *place, factor, index - symbol.index * factor)
