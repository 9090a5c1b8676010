"""Put two nests over the same outer loops, by an access that both make to one buffer.

An access names elements of memory, so loops of two nests correspond when they step through the same
elements alike. Extents that differ are split until they agree, which introduces no division into
any index:

```
nest a [i0<196608]                         nest a [i0<256] inner [r0<768]
  store t[i0]: …                     =>      store t[768*i0 + r0]: …
nest b [i0<256] inner [r0<768]             nest b [i0<256] inner [r0<768]
  sum s[i0]: t[768*i0 + r0]                  sum s[i0]: t[768*i0 + r0]
```
An outer loop of one nest that corresponds to an inner loop of the other becomes an inner loop,
which a nest of stores allows and a reduction does not.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from fusewright.ir.index import Index, LoopSymbol, Symbol, integer
from fusewright.records import field, record, replace
from fusewright.schedule.nest import Access, Nest, Piece


@record
class LoopPart:
    """A loop, or a part of one after splitting, as it steps through memory."""

    loop: LoopSymbol
    extent: Index
    stride: Index
    weight: Index
    """The distance by which one step of the part moves the whole loop."""


@record
class Pair:
    """Parts of one loop of each nest that step through the same elements."""

    left: LoopPart
    right: LoopPart


@record(frozen=False)
class Side:
    """The loops of one nest after aligning: for each old loop the new loops that it is split into,
    outermost first.
    """

    nest: Nest
    parts: dict[Symbol, list[tuple[LoopSymbol, Index]]] = field(default_factory=dict)
    """New loop and its weight."""

    demoted: list[LoopSymbol] = field(default_factory=list)
    """New loops that were outer and are inner now."""

    def renaming(self) -> dict[Symbol, Index]:
        places: dict[Symbol, Index] = {}
        for old, parts in self.parts.items():
            total = integer(0)
            for new, weight in parts:
                total = total + new.index * weight
            places[old] = total
        return places

    def new_loops(self, old: LoopSymbol) -> list[LoopSymbol]:
        """What an old loop is split into, outermost first; itself where it stays."""
        parts = self.parts.get(old)
        return [old] if parts is None else [new for new, _ in parts]

    def demoted_loops(self) -> list[LoopSymbol]:
        """The old loops that `demoted` are parts of."""
        gone = set(self.demoted)
        return [old for old in self.nest.outer if gone & {new for new, _ in self.parts[old]}]

    def is_unchanged(self) -> bool:
        same = all(len(parts) == 1 and parts[0][0] == old for old, parts in self.parts.items())
        return same and not self.demoted


@record
class Alignment:
    """Two nests over the same outer loops; nothing is rewritten until `left` or `right` is asked
    for.
    """

    outer: tuple[LoopSymbol, ...]
    left_side: Side
    right_side: Side

    def left(self) -> Nest:
        return _apply(self.left_side, self.outer)

    def right(self) -> Nest:
        return _apply(self.right_side, self.outer)


def align(
    left: Nest, left_access: tuple[Piece, Access], right: Nest, right_access: tuple[Piece, Access]
) -> Alignment | str:
    """The alignment in which both accesses step through memory together, or why there is none."""
    left_axes = _axes(left, *left_access)
    right_axes = _axes(right, *right_access)
    if left_axes is None or right_axes is None:
        return f"{left_access[1].buffer} is accessed at an irregular index"
    pairs = _refine(left_axes, right_axes)
    if isinstance(pairs, str):
        return pairs
    return _Builder(left, right).build(pairs)


def split_alike(
    nest: Nest, own: tuple[Piece, Access], other: Nest, others: tuple[Piece, Access]
) -> Nest | None:
    """A nest whose loops are split so that its access steps through memory as that of another nest
    does, by one loop where that has one; None where they do not correspond, or are alike already.
    """
    axes, wanted = _axes(nest, *own), _axes(other, *others)
    if axes is None or wanted is None:
        return None
    pairs = _refine(axes, wanted)
    if isinstance(pairs, str):
        return None
    side = Side(nest)
    taken = set(nest.symbols)
    for part in (pair.left for pair in reversed(pairs)):
        prefix = "i" if part.loop in nest.outer else "r"
        name = next(f"{prefix}{n}" for n in count() if f"{prefix}{n}" not in taken)
        is_whole = part.extent == part.loop.extent
        new = part.loop if is_whole else nest.analysis.loop(name, part.extent)
        taken.add(new.name)
        side.parts.setdefault(part.loop, []).append((new, part.weight))
    if side.is_unchanged():
        return None
    outer = [new for old in nest.outer for new in side.new_loops(old)]
    return _apply(side, tuple(outer))


def _axes(nest: Nest, piece: Piece, access: Access) -> list[LoopPart] | None:
    """The loops that move the access, by ascending stride; None where a step is not constant."""
    if not access.is_affine:
        return None
    axes: list[LoopPart] = []
    free = access.index.free()
    loops = [symbol for symbol in (*nest.outer, *piece.inner) if symbol in free]
    for symbol in loops:
        stride = nest.analysis.stride(access.index, symbol)
        if stride is None or any(s in loops for s in stride.free()):
            return None
        axes.append(LoopPart(symbol, symbol.extent, stride, integer(1)))
    return sorted(axes, key=lambda axis: nest.analysis.hint(axis.stride))


def _refine(left: list[LoopPart], right: list[LoopPart]) -> list[Pair] | str:
    """Walk both from the smallest stride up, splitting the longer of two extents."""
    left, right = list(reversed(left)), list(reversed(right))
    pairs: list[Pair] = []
    while left and right:
        a, b = left.pop(), right.pop()
        if a.stride != b.stride:
            return f"steps of {a.stride} and {b.stride} elements do not match"
        if a.extent == b.extent:
            pairs.append(Pair(a, b))
        elif (low_high := _split(a, b.extent)) is not None:
            pairs.append(Pair(low_high[0], b))
            left.append(low_high[1])
        elif (low_high := _split(b, a.extent)) is not None:
            pairs.append(Pair(a, low_high[0]))
            right.append(low_high[1])
        else:
            return f"extents {a.extent} and {b.extent} do not divide each other"
    if left or right:
        return "one accesses more elements than the other"
    return pairs


def _split(axis: LoopPart, low: Index) -> tuple[LoopPart, LoopPart] | None:
    """The inner part of extent `low` and the outer rest; None where `low` is not proved to divide
    the extent.
    """
    if low == 0 or axis.extent == 0 or axis.extent % low != 0:
        return None
    return (
        replace(axis, extent=low),
        replace(
            axis,
            extent=axis.extent // low,
            stride=axis.stride * low,
            weight=axis.weight * low,
        ),
    )


class _Builder:
    """Chooses the new loops of both sides; prefers loops that are there already, so that little is
    rewritten.
    """

    def __init__(self, left: Nest, right: Nest) -> None:
        self.left, self.right = Side(left), Side(right)
        self.outer: list[LoopSymbol] = []
        self.taken = set(left.symbols | right.symbols)
        self.chosen: set[str] = set()

    def build(self, pairs: list[Pair]) -> Alignment | str:
        for pair in reversed(pairs):
            self._place(pair.left, pair.right)
        self._place_rest()
        for side, name in ((self.left, "first"), (self.right, "second")):
            if side.demoted and not side.nest.is_pointwise:
                loops = ", ".join(map(str, side.demoted_loops()))
                return f"the {name} is no plain store: its outer {loops} cannot be an inner loop"
        _separate(self.left, self._fresh)
        _separate(self.right, self._fresh)
        return Alignment(tuple(self.outer), self.left, self.right)

    def _place(self, left: LoopPart, right: LoopPart) -> None:
        left_outer = left.loop in self.left.nest.outer
        right_outer = right.loop in self.right.nest.outer
        new = self._choose(left, right, is_outer=left_outer and right_outer)
        self.chosen.add(new.name)
        self.left.parts.setdefault(left.loop, []).append((new, left.weight))
        self.right.parts.setdefault(right.loop, []).append((new, right.weight))
        if left_outer and right_outer:
            self.outer.append(new)
        elif left_outer:
            self.left.demoted.append(new)
        elif right_outer:
            self.right.demoted.append(new)

    def _choose(self, left: LoopPart, right: LoopPart, is_outer: bool) -> LoopSymbol:
        """A loop of either side that is kept whole, else a fresh one."""
        for axis, nest in ((left, self.left.nest), (right, self.right.nest)):
            whole = axis.extent == axis.loop.extent
            if (
                whole
                and (axis.loop in nest.outer) == is_outer
                and axis.loop.name not in self.chosen
            ):
                return axis.loop
        return self._fresh("i" if is_outer else "r", left.extent)

    def _place_rest(self) -> None:
        """Outer loops that neither access moves along: matched by extent, the others become inner
        loops.
        """
        one = integer(1)
        rest = [s for s in self.right.nest.outer if s not in self.right.parts]
        for symbol in self.left.nest.outer:
            if symbol in self.left.parts:
                continue
            partner = next((s for s in rest if s.extent == symbol.extent), None)
            if partner is None:
                self._demote(self.left, symbol, self.right)
            else:
                rest.remove(partner)
                size = symbol.extent
                self._place(LoopPart(symbol, size, one, one), LoopPart(partner, size, one, one))
        for symbol in rest:
            self._demote(self.right, symbol, self.left)

    def _demote(self, side: Side, symbol: LoopSymbol, other: Side) -> None:
        """Give an outer loop the name of an inner loop of the other side that is as long, if one is
        free.
        """
        inner = dict.fromkeys(s for piece in other.nest.pieces for s in piece.inner)
        free = (s for s in inner if s.extent == symbol.extent and s not in other.parts)
        new = next((s for s in free if s.name not in self.chosen), None)
        if new is None:
            new = self._fresh("r", symbol.extent)
        self.chosen.add(new.name)
        side.parts[symbol] = [(new, integer(1))]
        side.demoted.append(new)

    def _fresh(self, prefix: str, size: Index) -> LoopSymbol:
        number = 0
        while f"{prefix}{number}" in self.taken:
            number += 1
        self.taken.add(f"{prefix}{number}")
        return self.left.nest.analysis.loop(f"{prefix}{number}", size)


def _separate(side: Side, fresh: Callable[[str, Index], LoopSymbol]) -> None:
    """Rename inner loops that stay, where a loop that comes beside them bears the same name."""
    for piece in side.nest.pieces:
        arriving = {symbol.name for symbol in side.demoted}
        for symbol in piece.inner:
            arriving.update(new.name for new, _ in side.parts.get(symbol, ()))
        for symbol in piece.inner:
            if symbol not in side.parts and symbol.name in arriving:
                side.parts[symbol] = [(fresh("r", symbol.extent), integer(1))]


def _apply(side: Side, outer: tuple[LoopSymbol, ...]) -> Nest:
    if side.is_unchanged():
        return side.nest if outer == side.nest.outer else replace(side.nest, outer=outer)
    renaming = side.renaming()
    demoted = tuple(side.demoted)
    pieces = []
    for piece in side.nest.pieces:
        inner = list(demoted)
        for symbol in piece.inner:
            inner.extend(side.new_loops(symbol))
        pieces.append(piece.rename(renaming, tuple(inner), side.nest.analysis))
    return replace(side.nest, outer=outer, pieces=tuple(pieces))
