"""From an element of a buffer back to the loops that write it: the inverse of a dense, strided
access.

`128*i0 + i1` with `i1 < 128` is inverted to `i0 = element // 128`, `i1 = element % 128`; with an
element like `128*j + 5` index arithmetic simplifies that to `i0 = j`, `i1 = 5`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fusewright.ir.index import Compound, Index, Symbol, integer
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.nest import extent


def loops_of_element(
    write: Index, loops: Sequence[Symbol], element: Index, analysis: Analysis
) -> dict[Symbol, Index] | None:
    """The value of each loop when `write` is `element`, or None where the strides do not tell the
    loops apart.

    Each stride must be a multiple of the whole way of all loops of smaller stride, which is proved,
    not assumed.
    """
    strides = [(symbol, write.stride(symbol)) for symbol in loops]
    steps: list[tuple[Symbol, Index]] = []
    for symbol, stride in strides:
        if stride is None or stride.free() & set(loops):
            return None
        steps.append((symbol, stride))
    steps.sort(key=lambda step: -analysis.hint(step[1]))
    if not _are_nested(steps):
        return None
    rest = element - write.substitute({symbol: integer(0) for symbol in loops})
    found: dict[Symbol, Index] = {}
    for symbol, stride in steps:
        found[symbol] = rest // stride
        rest = rest % stride
    return found


def _are_nested(steps: list[tuple[Symbol, Index]]) -> bool:
    """Whether each stride is a multiple of the whole way of the loop that steps less."""
    for (_, outer), (symbol, inner) in pairwise(steps):
        if outer == 0 or inner == 0 or outer % (extent(symbol) * inner) != 0:
            return False
    return all(stride.lower is not None and stride.lower > 0 for _, stride in steps)


def compounds(index: Index) -> int:
    """How many divisions, remainders, minima and maxima an index contains."""
    total = 0
    for _, atoms in index.terms:
        for atom in atoms:
            if isinstance(atom, Compound):
                total += 1 + compounds(atom.left) + compounds(atom.right)
    return total
