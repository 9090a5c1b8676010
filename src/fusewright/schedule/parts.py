"""Parts of a loop at once: where conditions divide a loop into equal parts, as a concatenation's
do, a point computes an element of each, free of conditions.

Before, the gradient of `a, b = x.chunk(2, -1)`, 1024 elements each:
```
nest [i0<256, i1<2048]
  store y[2048*i0 + i1]:  f(g[1024*i0 + i1]) where i1 < 1024, else h(g[1024*i0 + i1 - 1024])
```
After:
```
nest [i0<256, i1<1024]
  store y[2048*i0 + i1]:         f(g[1024*i0 + i1])
  store y[2048*i0 + i1 + 1024]:  h(g[1024*i0 + i1])
```
A lane of a GPU computes both sides of a condition, and what the sides share is read by lanes far
apart; so it is once, by one. What reads both halves, such as sums that go with a rotary embedding's
gradient, then walks over the same points: nests that changed are tried for fusion again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Final

from fusewright.ir.bounds import compared_indices
from fusewright.ir.index import Index, LoopSymbol, Symbol, extent
from fusewright.ir.neutral import COMBINATIONS
from fusewright.ir.proof import decide
from fusewright.ir.relations import Relation
from fusewright.ir.value import Apply, Value
from fusewright.records import record, replace
from fusewright.schedule.fusion import PIECES_LIMIT, Graph, fuse
from fusewright.schedule.nest import Nest, Piece
from fusewright.schedule.simplify import simplify
from fusewright.schedule.stripes import join_columns_again

MOST_PARTS: Final = 4
"""Parts of a loop: a point holds what it computes of each in registers."""

SHORTEST_RUN: Final = 32
"""Bytes of memory in which a part lies contiguous at least: the unit in which it is read."""


@record
class Cut:
    """A loop and the number of its parts."""

    loop: LoopSymbol
    count: int

    @property
    def length(self) -> Index:
        """Points of a part."""
        return self.loop.extent // self.count


def parts_at_once(graph: Graph) -> None:
    """Compute equal parts of loops at once, where a device does so (`Limits.does_parts_at_once`).
    Changes `graph` in place.
    """
    changed: list[int] = []
    for number in range(len(graph.steps)):
        nest = graph.nest(number)
        if nest is None or nest.is_product:
            continue
        if not graph.analysis.limits_of(nest.device).does_parts_at_once:
            continue
        conditions = _conditions(nest)
        open_ones = [condition for condition in conditions if decide(condition) is None]
        if len(open_ones) < len(conditions):
            nest = graph.steps[number] = _resolved(nest)
        cut = cut_of(nest, open_ones)
        if cut is not None:
            graph.steps[number] = simplify(apart(nest, cut))
            changed.append(number)
    fuse(graph, changed)
    for number in changed:
        join_columns_again(graph, number)
    for number in changed:
        nest = graph.nest(number)
        if nest is not None:
            graph.steps[number] = simplify(nest)


# Decision -----------------------------------------------------------------------------------------


def cut_of(nest: Nest, conditions: Sequence[Relation]) -> Cut | None:
    """The cut of a nest with these conditions into the fewest parts in which each of those on the
    loop that is cut is known; None: there is none, or no gain.
    """
    if not conditions:
        return None
    for loop in _common_loops(nest):
        own = [condition for condition in conditions if loop in condition.free()]
        if not own:
            continue
        for count in range(2, MOST_PARTS + 1):
            if loop.extent == 0 or loop.extent % count != 0:
                continue
            cut = Cut(loop, count)
            if _decides(nest, cut, own) and why_not_cut(nest, cut) is None:
                return cut
    return None


def why_not_cut(nest: Nest, cut: Cut) -> str | None:
    """The reason why a point may not compute an element of each part, or None."""
    if len(nest.pieces) * cut.count > PIECES_LIMIT:
        return f"there would be more than {PIECES_LIMIT} pieces"
    is_outer = cut.loop in nest.outer
    for piece in nest.pieces:
        if not (piece.is_store or piece.is_reduction or (piece.kind == "gather" and not is_outer)):
            return f"a {piece.kind} has an order"
        if piece.is_reduction and cut.loop in piece.inner and piece.kind not in COMBINATIONS:
            return f"{piece.kind} is not put together of parts"
    rows = {piece.inner for piece in nest.pieces if piece.inner}
    if is_outer and rows and not _is_contiguous(nest, cut.loop):
        return "only a program's rows differ in the condition"
    if not is_outer and any(_is_long(nest, loops) for loops in rows):
        return "rows are longer than what a kernel holds"
    if any(run < SHORTEST_RUN for run in _runs(nest, cut)):
        return "a part is too short a piece of memory"
    return None


def _conditions(nest: Nest) -> list[Relation]:
    """The relations of indices that values depend on, each once."""
    relations = (
        compared_indices(value)
        for piece in nest.pieces
        for root in piece.roots
        for value in nest.analysis.nodes(root)
        if isinstance(value, Apply)
    )
    return [relation for relation in dict.fromkeys(relations) if relation is not None]


def _common_loops(nest: Nest) -> Iterator[LoopSymbol]:
    """The loops that may be cut: inner ones of all pieces that have such, and outer ones."""
    inner = [piece.inner for piece in nest.pieces if piece.inner]
    if inner:
        yield from (loop for loop in inner[0] if all(loop in loops for loops in inner))
    yield from nest.outer


def _decides(nest: Nest, cut: Cut, conditions: Sequence[Relation]) -> bool:
    """Whether it is known of every condition if it holds, in each part."""
    for place in _places(nest, cut):
        inside = partial(nest.analysis.substitute, renaming=place)
        if any(decide(condition.rewritten(inside)) is None for condition in conditions):
            return False
    return True


def _is_long(nest: Nest, loops: Sequence[LoopSymbol]) -> bool:
    """Whether a row of these loops is walked over, or may be."""
    length = nest.analysis.product(map(extent, loops))
    return length.upper is None or length.upper > nest.analysis.limits_of(nest.device).held_row


def _is_contiguous(nest: Nest, loop: LoopSymbol) -> bool:
    """Whether neighbouring points of a loop read neighbouring elements."""
    loads = (index for piece in nest.pieces for index in piece.indices(nest.analysis))
    return any(nest.analysis.stride(index, loop) == 1 for index in loads)


def _runs(nest: Nest, cut: Cut) -> Iterator[int]:
    """The bytes of memory over which a part of each buffer that is written stretches."""
    analysis = nest.analysis
    for name, places in nest.written.items():
        for _, write in places:
            stride = analysis.stride(write.index, cut.loop)
            if stride is not None and stride != 0 and not _loops_in(stride):
                length = abs(analysis.hint(stride)) * analysis.hint(cut.length)
                yield length * analysis.buffers[name].layout.dtype.bytes


def _loops_in(index: Index) -> bool:
    return any(isinstance(symbol, LoopSymbol) for symbol in index.free())


# Change -------------------------------------------------------------------------------------------


def _resolved(nest: Nest) -> Nest:
    """The nest without the conditions that are known."""
    pieces = (replace(piece, value=_value(piece.value, {}, nest)) for piece in nest.pieces)
    return replace(nest, pieces=tuple(pieces))


def apart(nest: Nest, cut: Cut) -> Nest:
    """The nest whose points compute an element of each part."""
    part = nest.analysis.loop(cut.loop.name, cut.length)
    outer = tuple(part if loop == cut.loop else loop for loop in nest.outer)
    places = _places(nest, cut)
    pieces: list[Piece] = []
    for piece in nest.pieces:
        inner = tuple(part if loop == cut.loop else loop for loop in piece.inner)
        if cut.loop not in (*nest.outer, *piece.inner):
            pieces.append(piece)
        elif piece.is_reduction and cut.loop in piece.inner:
            pieces.append(replace(piece, inner=inner, value=_combined(piece, places, nest)))
        else:
            pieces += (_at(piece, inner, place, nest) for place in places)
    return replace(nest, outer=outer, pieces=tuple(pieces))


def _places(nest: Nest, cut: Cut) -> list[Mapping[Symbol, Index]]:
    """Of each part, where its points are along the loop."""
    part = nest.analysis.loop(cut.loop.name, cut.length)
    return [{cut.loop: part.index + cut.length * number} for number in range(cut.count)]


def _at(
    piece: Piece, inner: tuple[LoopSymbol, ...], place: Mapping[Symbol, Index], nest: Nest
) -> Piece:
    """A piece that does what it did in one part."""
    writes = tuple(write.rename(place, nest.analysis) for write in piece.writes)
    return replace(piece, inner=inner, writes=writes, value=_value(piece.value, place, nest))


def _combined(piece: Piece, places: Sequence[Mapping[Symbol, Index]], nest: Nest) -> Value:
    """What a reduction gathers of all parts at a point."""
    apply, operation = nest.analysis.expressions.apply, COMBINATIONS[piece.kind]
    values = (_value(piece.value, place, nest) for place in places)
    return reduce(lambda left, right: apply(operation, left, right), values)


def _value(value: Value, place: Mapping[Symbol, Index], nest: Nest) -> Value:
    """A value in one part, where conditions are known."""

    def known(comparison: Apply) -> bool | None:
        relation = compared_indices(comparison)
        return None if relation is None else decide(relation)

    return nest.analysis.expressions.rewrite(value, place, lambda load: None, known)
