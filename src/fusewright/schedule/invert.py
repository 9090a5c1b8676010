"""From an element of a buffer back to the loops that write it: the inverse of a dense, strided
access.

`128*i0 + i1` with `i1 < 128` is inverted to `i0 = element // 128`, `i1 = element % 128`; with an
element like `128*j + 5` index arithmetic simplifies that to `i0 = j`, `i1 = 5`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from fusewright.ir.bounds import ALWAYS, Conditions
from fusewright.ir.index import Compound, Index, LoopSymbol, Symbol, integer
from fusewright.ir.proof import proves
from fusewright.ir.relations import at_least, below
from fusewright.schedule.analysis import Analysis

ZERO = integer(0)


def loops_of_element(
    write: Index,
    loops: Sequence[LoopSymbol],
    element: Index,
    analysis: Analysis,
    conditions: Conditions = ALWAYS,
) -> dict[Symbol, Index] | None:
    """The value of each loop when `write` is `element`, or None where the strides do not tell the
    loops apart.

    Each stride must be a multiple of the whole way of all loops of smaller stride, which is proved,
    not assumed. `conditions` hold wherever the element is read (`ir.bounds`).
    """
    steps: list[tuple[LoopSymbol, Index]] = []
    for symbol in loops:
        stride = analysis.stride(write, symbol)
        if stride is None or stride.free() & set(loops):
            return None
        steps.append((symbol, stride))
    steps.sort(key=lambda step: -analysis.hint(step[1]))
    if not are_nested([(symbol.extent, stride) for symbol, stride in steps]):
        return None
    rest = element - analysis.substitute(write, dict.fromkeys(loops, ZERO))
    for divide in (_rounded, _floored):
        digits = _digits(steps, rest, divide)
        if digits is not None and _are_within(loops, digits, conditions):
            return digits
    values: dict[Symbol, Index] = {}
    for symbol, stride in steps:
        values[symbol] = rest // stride
        rest = rest % stride
    return values


def _digits(
    steps: list[tuple[LoopSymbol, Index]], element: Index, divide: Callable[[int, int], int]
) -> dict[Symbol, Index] | None:
    """The multiples of each constant stride that stand in `element`, without any carrying.

    `divide` says how much of a constant belongs to a stride: `48*i0 + i1 - 16` is `(i0, i1 - 16)`.
    """
    digits: dict[Symbol, Index] = {}
    for symbol, stride in steps:
        if not stride.is_constant:
            return None
        step = stride.constant
        whole = tuple((c // step, atoms) for c, atoms in element.terms if c % step == 0)
        digits[symbol] = Index(whole, divide(element.constant, step))
        element = element - digits[symbol] * step
    return digits if element == 0 else None


def _rounded(number: int, step: int) -> int:
    return (number + step // 2) // step


def _floored(number: int, step: int) -> int:
    return number // step


def _are_within(
    loops: Iterable[LoopSymbol], digits: Mapping[Symbol, Index], conditions: Conditions
) -> bool:
    """Whether every loop is proved to be in its range."""
    return all(
        proves(at_least(digits[loop], 0), conditions)
        and proves(below(digits[loop], loop.extent), conditions)
        for loop in loops
    )


def are_nested(steps: Sequence[tuple[Index, Index]]) -> bool:
    """Whether each stride is a multiple of the whole way of the loop that steps less: of loops'
    extents and strides, largest stride first.
    """
    for (_, outer), (extent, inner) in pairwise(steps):
        whole = extent * inner
        if outer == 0 or whole == 0 or outer % whole != 0:
            return False
    return all(proves(at_least(stride, 1)) for _, stride in steps)


def compounds(index: Index) -> int:
    """The number of divisions, remainders, minima and maxima in an index."""
    total = 0
    for _, atoms in index.terms:
        for atom in atoms:
            if isinstance(atom, Compound):
                total += 1 + compounds(atom.left) + compounds(atom.right)
    return total
