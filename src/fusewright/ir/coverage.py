"""Judges whether stores write every element of the memory that they are for.

Of a store, the elements are the values of an index over its loops; of memory, those of its layout.
Both are sums of strides times positions. Two such sums are the same elements if they are equal once
dimensions of one element are left out and those that lie one behind the other are joined:

    store x[384*i0 + i1], i0<4, i1<384     1 × 1536       f32[4, 16, 24], contiguous     1 × 1536

Stores at an equal distance from each other, one behind the other, are a dimension more:

    stores y[128*i0 + i1], y[128*i0 + i1 + 64], i0<4, i1<64     4 × 2 × 64

Where that does not decide, counting may: a store over fewer points than there are elements leaves
some of them unwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from itertools import pairwise

from fusewright.ir.index import Index, LoopSymbol, integer, product
from fusewright.ir.program import Layout
from fusewright.ir.proof import proves
from fusewright.ir.relations import below
from fusewright.records import record


class Coverage(Enum):
    """Whether every element of one buffer or local is written, as far as the analysis can tell."""

    WHOLE = auto()
    """Every element is written."""

    PARTIAL = auto()
    """Some element is surely not written."""

    UNKNOWN = auto()


@record
class Dimension:
    """Positions 0 to `extent` - 1, `stride` elements apart."""

    stride: Index
    extent: Index


def judge_coverage(stores: Sequence[Index], layout: Layout) -> Coverage:
    """Whether stores at these indices, over all points of the loops in them, reach every element of
    `layout`.
    """
    wanted = [
        Dimension(stride, size)
        for stride, size in zip(layout.stride, layout.size, strict=True)
        if stride != 0
    ]
    count = product(dimension.extent for dimension in wanted)
    if count == 0:
        return Coverage.WHOLE
    joined = _joined(wanted)
    for dimensions, first in (*map(_dimensions, stores), _together(stores)):
        if dimensions is not None and first == layout.offset and _joined(dimensions) == joined:
            return Coverage.WHOLE
    points = integer(0)
    for index in stores:
        points = points + product(symbol.extent for symbol in loops_in(index))
    return Coverage.PARTIAL if proves(below(points, count)) else Coverage.UNKNOWN


def loops_in(index: Index) -> list[LoopSymbol]:
    """The loop variables on which an index depends, by name."""
    return sorted((s for s in index.free() if isinstance(s, LoopSymbol)), key=lambda s: s.name)


def _dimensions(index: Index) -> tuple[list[Dimension] | None, Index]:
    """The loop variables of an index with their strides, and its first value; None where one has no
    single stride.
    """
    dimensions: list[Dimension] = []
    for symbol in loops_in(index):
        stride = index.stride(symbol)
        if stride is None or loops_in(stride):
            return None, index
        dimensions.append(Dimension(stride, symbol.extent))
    return dimensions, index.substitute({symbol: integer(0) for symbol in loops_in(index)})


def _together(stores: Sequence[Index]) -> tuple[list[Dimension] | None, Index]:
    """The dimensions that several stores have together, and their first element; None where they
    are not alike, or lie at different distances.
    """
    (dimensions, first), *others = map(_dimensions, stores)
    places = [first, *(place for _, place in others)]
    steps = {after - before for before, after in pairwise(places)}
    alike = dimensions is not None and all(other == dimensions for other, _ in others)
    if dimensions is None or not alike or len(steps) != 1:
        return None, first
    return [*dimensions, Dimension(steps.pop(), integer(len(places)))], first


def _joined(dimensions: Iterable[Dimension]) -> frozenset[Dimension]:
    """The dimensions of more than one element, those one behind the other made one."""
    left = [dimension for dimension in dimensions if dimension.extent != 1]
    for _ in range(len(left)):
        pair = next(
            (
                (outer, inner)
                for outer in left
                for inner in left
                if outer is not inner and outer.stride == inner.stride * inner.extent
            ),
            None,
        )
        if pair is None:
            break
        outer, inner = pair
        left = [dimension for dimension in left if dimension not in (outer, inner)]
        left.append(Dimension(inner.stride, inner.extent * outer.extent))
    return frozenset(left)
