"""Chunks of a reduction: the loops over them, and the values that each of them gathers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusewright.ir.index import Index, LoopSymbol, Symbol
from fusewright.ir.neutral import neutral
from fusewright.ir.value import Expressions, Value
from fusewright.records import record

Loops = tuple[LoopSymbol, ...]


@record(kw_only=True)
class CutLoops:
    """Loops of which an inner one is cut, beside a loop over its chunks."""

    outer: Loops
    """With the loop over the chunks."""

    inner: Loops
    renamed: Mapping[Symbol, Index]
    """Outer loops that had other names."""

    place: Index
    """An element along the loop that was cut."""


@record(kw_only=True)
class Chunks:
    """The parts into which a reduction is cut."""

    cut: LoopSymbol
    """The loop that is cut."""

    count: int
    is_first: bool
    """Whether the loop over the chunks is the outermost, else the innermost."""

    is_interleaved: bool = False
    """Whether a chunk has one of every `count` turns, else turns that follow each other."""

    @property
    def length(self) -> Index:
        """Elements of a chunk along the loop that is cut."""
        return (self.cut.extent + (self.count - 1)) // self.count

    @property
    def fit(self) -> bool:
        """Whether all chunks are equally long."""
        return self.length * self.count == self.cut.extent

    def point(self, chunk: Index, loops: Loops) -> tuple[Index, ...]:
        """An element of the partial results: of one chunk, at a point of the loops."""
        point = tuple(symbol.index for symbol in loops)
        return (chunk, *point) if self.is_first else (*point, chunk)

    def loops(self, outer: Loops, inner: Loops) -> CutLoops:
        """The loops of the partial results in place of these, of which the cut one is inside."""
        own = tuple(
            LoopSymbol(f"i{place + self.is_first}", symbol.extent)
            for place, symbol in enumerate(outer)
        )
        chunk = LoopSymbol("i0" if self.is_first else f"i{len(own)}", self.count)
        rest = LoopSymbol(self.cut.name, self.length)
        return CutLoops(
            outer=(chunk, *own) if self.is_first else (*own, chunk),
            inner=tuple(rest if symbol == self.cut else symbol for symbol in inner),
            renamed={old: new.index for old, new in zip(outer, own, strict=True) if old != new},
            place=(
                rest.index * self.count + chunk.index
                if self.is_interleaved
                else chunk.index * self.length + rest.index
            ),
        )

    def within(self, make: Expressions, place: Index, kind: str, value: Value) -> Value:
        """A value, which behind the end of the loop that was cut changes no result of `kind`."""
        if self.fit:
            return value
        inside = make.apply("lt", make.index(place), make.index(self.cut.extent))
        return make.masked(inside, value, neutral(kind, value.dtype))


def loop_to_cut(
    loops: Loops,
    count: int,
    accesses: Sequence[Index],
    hint: Callable[[Index], int],
) -> LoopSymbol:
    """The loop to cut into about `count` chunks: of those with turns for half as many (or else the
    most), the one with the longest steps through memory, so that a chunk is one piece of it rather
    than a part of each row. `hint`: of a size, or a guess.
    """
    enough = min(-(-count // 2), max(hint(symbol.extent) for symbol in loops))

    def step(symbol: LoopSymbol) -> int:
        strides = (index.stride(symbol) for index in accesses)
        return max((abs(hint(own)) for own in strides if own is not None), default=0)

    return max((symbol for symbol in loops if hint(symbol.extent) >= enough), key=step)


def near_count(extent: Index, count: int) -> int:
    """The number nearest to `count`, of those from half to twice of it, that divides the extent;
    where none does, `count` itself.
    """
    divisor = extent.divisor
    fitting = [n for n in range(max(2, count // 2), 2 * count + 1) if divisor % n == 0]
    return min(fitting, key=lambda n: (abs(n - count), n)) if fitting else count
