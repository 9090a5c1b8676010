"""Random numbers in Triton: how a position is written, so that elements beside each other share a
run of the generator, and how a number is compared without being made.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

from fusewright import philox
from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, LoopSymbol, known_multiple
from fusewright.ir.value import Apply, Constant, Random
from fusewright.kernels.triton.tiling import TileAxis
from fusewright.records import record

NUMBERS = 1 << 24
"""How many numbers there are in [0, 1): each is a multiple of one part of so many."""

DISCARDED_BITS = 8
"""Lower bits of a word that are not in the number."""


@record
class PlaceOfDraw:
    """Where a number is drawn: word `lane % 4` of what the generator gives for a counter."""

    counter: Index
    """The position by four, rounded down; in terms of `quarter(axis)`, if there is an axis."""

    lane: Index
    """What is the position modulo four."""

    axis: TileAxis | None
    """The axis along which four points that follow each other have one counter."""


def place_of(position: Index, axes: Iterable[TileAxis]) -> PlaceOfDraw:
    """The place of the number at a position. Where this rises by one along an axis, and four points
    that begin at a multiple of four have one counter, this is told in terms of a variable that they
    share: `2048*r + x % 2048` has the counter `512*r + xquarter % 512`. That the position itself by
    four is one number for four elements is more than LLVM finds in all of them.
    """
    lanes = philox.LANES
    for axis in axes:
        rest = LoopSymbol("rest", lanes)
        whole = lanes * quarter(axis).index + rest.index
        start = position.substitute({axis.symbol: whole}) - rest.index
        is_apart = rest not in start.free() and known_multiple(start, lanes)
        if is_apart and axis.block % lanes == 0:
            return PlaceOfDraw(start // lanes, axis.symbol.index, axis)
    return PlaceOfDraw(position // lanes, position, None)


def quarter(axis: TileAxis) -> LoopSymbol:
    """The variable that is an axis' own by four, rounded down."""
    lanes = philox.LANES
    return LoopSymbol(f"{axis.name}quarter", (axis.extent + (lanes - 1)) // lanes)


def compared_bits(value: Apply) -> tuple[Random, str] | None:
    """The random number that a comparison asks about, and the comparison that asks the same of its
    word; None: it is no comparison of a number with a constant within its range.

    A number is `(word >> 8) / 2**24`, exactly: it is not below c where the word is not below the
    least multiple of 2**8 that is not below `c * 2**32`.
    """
    if value.operation not in ("ge", "lt") or not isinstance(value.arguments[1], Constant):
        return None
    drawn, bound = value.arguments
    assert isinstance(bound, Constant), "asked above"
    if not isinstance(drawn, Random) or drawn.dtype is not DType.F32 or not 0 < bound.value < 1:
        return None
    (rounded,) = struct.unpack("f", struct.pack("f", bound.value))
    least = math.ceil(rounded * NUMBERS)
    if least >= NUMBERS:
        return None
    return drawn, f"{'>=' if value.operation == 'ge' else '<'} {least << DISCARDED_BITS}"
