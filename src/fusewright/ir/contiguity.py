"""Whether rows that are gone through lie along memory, or across it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fusewright.ir.index import Index, LoopSymbol


def rows_lie_across(
    accesses: Iterable[tuple[Index, Sequence[LoopSymbol]]],
    outer: Sequence[LoopSymbol],
    turns: Callable[[LoopSymbol], int],
    share: int = 1,
) -> bool:
    """Whether elements of rows are next to each other along an outer loop, of the next row, rather
    than along the row: more than one in `share` of those that are so at all.

    `accesses`: each index with the loops of the row that it is in. One that stays where it is along
    the row, as that of a bias, says nothing. `turns`: of a loop, or a guess.
    """
    across = along = 0
    for index, inner in accesses:
        if not any(index.stride(symbol) not in (0, None) for symbol in inner):
            continue
        free = index.free()
        elements = 1
        for symbol in (*outer, *inner):
            if symbol in free:
                elements *= turns(symbol)
        if any(index.stride(symbol) == 1 for symbol in inner):
            along += elements
        if any(index.stride(symbol) == 1 for symbol in outer):
            across += elements
    return share * across > along
