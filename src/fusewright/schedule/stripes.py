"""Rows and columns of the same data in one kernel: each unit of work walks over a stripe of rows,
does what each row needs, and adds up the columns as it goes.

The backward of a normalisation gathers along rows for the gradient of its input, and along columns
for those of weight and bias; these come in chunks of rows (`split`). Before:
```
nest [i0<8192]               sum   s[i0] over [r0<768]:  g[768*i0 + r0]
                             store d[768*i0 + r0] over [r0<768]:  g[768*i0 + r0] - s[i0]
nest [i0<512, i1<768]        sum   p[768*i0 + i1] over [r0<16]:  g[12288*i0 + 768*r0 + i1]
```
After:
```
nest [i0<512, i1<16]         sum    s[16*i0 + i1] over [r0<768]:  g[12288*i0 + 768*i1 + r0]
                             store  d[12288*i0 + 768*i1 + r0] over [r0<768]:  …
                             gather p[768*i0 + r0] = sum over [r0<768]:  g[…]
```
So the data is read once. The columns of a stripe are added up in one order, by no atomics.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.index import Index, LoopSymbol, Symbol, extent, integer
from fusewright.ir.neutral import NEUTRAL_ELEMENTS
from fusewright.records import record, replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.fusion import Graph, join, partners, why_not_join
from fusewright.schedule.invert import are_nested
from fusewright.schedule.nest import Nest, Piece


@record
class _Rows:
    """A nest of rows: outer loops, and one inner loop that all pieces with loops have."""

    nest: Nest
    inner: LoopSymbol

    @property
    def count(self) -> Index:
        """The number of rows."""
        return self.nest.analysis.product(map(extent, self.nest.outer))

    @property
    def element(self) -> Index:
        """An element of data whose rows these are, one behind the other."""
        row = integer(0)
        for symbol in self.nest.outer:
            row = row * symbol.extent + symbol.index
        return row * self.inner.extent + self.inner.index

    def at(self, row: Index) -> dict[Symbol, Index]:
        """The outer loops at a row."""
        loops: dict[Symbol, Index] = {}
        for symbol in reversed(self.nest.outer[1:]):
            loops[symbol] = row % symbol.extent
            row = row // symbol.extent
        return {**loops, self.nest.outer[0]: row}


@record
class _Columns:
    """Sums of columns in chunks of rows, as pieces that gather them along a stripe of rows."""

    outer: tuple[LoopSymbol, ...]
    """The loop over stripes, and the loops over the rows of one."""

    row: Index
    """The row, in terms of these."""

    pieces: tuple[Piece, ...]
    """They have the inner loop of the rows."""


def stripes(graph: Graph) -> None:
    """Join nests of rows with nests of columns in chunks that share data. Changes `graph` in
    place.
    """
    for number in range(len(graph.steps)):
        nest = graph.nest(number)
        rows = None if nest is None else _rows(nest)
        if rows is not None:
            _join_columns(graph, number, rows)


def _rows(nest: Nest) -> _Rows | None:
    """A nest as rows that fit a program; None: it is something else."""
    limits = nest.analysis.limits_of(nest.device)
    loops = {piece.inner for piece in nest.pieces if piece.inner}
    if not limits.stripes or not nest.outer or len(loops) != 1 or nest.is_product:
        return None
    (inner,) = loops
    plain = all(piece.is_store or piece.is_reduction for piece in nest.pieces)
    gathers = any(piece.is_reduction and piece.inner for piece in nest.pieces)
    if not plain or not gathers or len(inner) != 1:
        return None
    rows, length = _Rows(nest, inner[0]), inner[0].extent
    if not length.is_constant or not rows.count.is_constant or rows.count == 0:
        return None
    if not 0 < int(length) <= limits.longest_row:
        return None
    return rows


def _join_columns(graph: Graph, number: int, rows: _Rows) -> None:
    """Join nests of columns with the rows at `number`: all those of equal stripes."""
    place = number
    walk: tuple[tuple[LoopSymbol, ...], Index] | None = None
    for other in [*partners(graph, number)]:
        nest = graph.nest(other)
        columns = None if nest is None or other == place else _columns(nest, rows)
        if columns is None or walk not in (None, (columns.outer, columns.row)):
            continue
        striped = graph.nest(place)
        assert striped is not None
        if walk is None:
            pieces = _renamed_pieces(striped.pieces, rows.at(columns.row), graph.analysis)
            striped = replace(striped, outer=columns.outer, pieces=tuple(pieces))
        if not _may_join(graph, place, other, striped, columns):
            continue
        walk = columns.outer, columns.row
        first, second = sorted((place, other))
        join(graph, first, second, columns.outer, (*striped.pieces, *columns.pieces))
        place = first


def _columns(nest: Nest, rows: _Rows) -> _Columns | None:
    """A nest as sums of the columns of these rows, in chunks; None: it is something else."""
    if any(piece.kind not in NEUTRAL_ELEMENTS for piece in nest.pieces):
        return None
    if len(nest.outer) == 1:
        nest = _apart(nest, rows.inner.extent)
    if len(nest.outer) != 2 or nest.outer[1].extent != rows.inner.extent:
        return None
    limits = nest.analysis.limits_of(nest.device)
    chunk = nest.outer[0]
    if not chunk.extent.is_constant or not limits.are_enough_stripes(int(chunk.extent)):
        return None
    for name, places in nest.loaded.items():
        at = [access.index for _, access in rows.nest.loaded.get(name, ())]
        at += [write.index for _, write in rows.nest.written.get(name, ())]
        if rows.element not in at:
            continue
        for piece, access in places:
            row = _row_of(access.index, nest, piece, rows) if access.is_affine else None
            if row is not None and all(_fits(own, piece.inner, nest) for own in nest.pieces):
                return _gathered(nest, piece.inner, row, rows.inner)
    return None


def _apart(nest: Nest, length: Index) -> Nest:
    """A nest whose one outer loop is apart into chunks and columns, where it may be both."""
    (loop,) = nest.outer
    if not loop.extent.is_constant or int(loop.extent) % int(length):
        return nest
    make = nest.analysis.loop
    outer = (make("i0", loop.extent // length), make("i1", length))
    place = outer[0].index * length + outer[1].index
    pieces = _renamed_pieces(nest.pieces, {loop: place}, nest.analysis)
    return replace(nest, outer=outer, pieces=tuple(pieces))


def _row_of(index: Index, nest: Nest, piece: Piece, rows: _Rows) -> Index | None:
    """The row that a load of a column touches, as a number whose digits are the chunk and the
    loops of the piece; None: it touches something else.
    """
    loops, column = (nest.outer[0], *piece.inner), nest.outer[1]
    length = rows.inner.extent
    steps: list[tuple[Index, Index]] = []
    row = integer(0)
    for symbol in loops:
        stride = nest.analysis.stride(index, symbol)
        if stride is None or stride % length != 0:
            return None
        steps.append((symbol.extent, stride // length))
        row = row + symbol.index * (stride // length)
    count = nest.analysis.product(map(extent, loops))
    steps.sort(key=lambda step: -nest.analysis.hint(step[1]))
    if index != row * length + column.index or count != rows.count:
        return None
    return row if steps[-1][1] == 1 and are_nested(steps) else None


def _fits(piece: Piece, walked: tuple[LoopSymbol, ...], nest: Nest) -> bool:
    """Whether a piece can run over these loops: they are its own, or it has as many points, all
    alike.
    """
    if piece.inner == walked:
        return True
    analysis = nest.analysis
    moving = any(set(piece.inner) & index.free() for index in piece.indices(analysis))
    counts = [analysis.product(map(extent, loops)) for loops in (piece.inner, walked)]
    return not moving and counts[0] == counts[1]


def _gathered(
    nest: Nest, walked: tuple[LoopSymbol, ...], row: Index, inner: LoopSymbol
) -> _Columns:
    """The pieces of a nest of columns as sums that are carried from row to row, over loops of new
    names.
    """
    analysis, (chunk, column) = nest.analysis, nest.outer
    old = (chunk, *walked)
    outer = tuple(analysis.loop(f"i{k}", symbol.extent) for k, symbol in enumerate(old))
    walks: dict[Symbol, Index] = {o: new.index for o, new in zip(old, outer, strict=True)}
    pieces = []
    for piece in nest.pieces:
        own: dict[Symbol, Index] = {chunk: outer[0].index}
        if piece.inner == walked:
            own = walks
        renamed = piece.rename({**own, column: inner.index}, (inner,), analysis)
        pieces.append(replace(renamed, kind="gather", mode=piece.kind))
    return _Columns(outer, analysis.substitute(row, walks), tuple(pieces))


def _may_join(graph: Graph, place: int, other: int, rows: Nest, columns: _Columns) -> bool:
    """Whether columns may be gathered where the rows are: everything that they load is at hand."""
    if why_not_join(graph, min(place, other), max(place, other)) is not None:
        return False
    if graph.dependencies.must_precede(other, place):
        return False
    loads = [load for piece in columns.pieces for load in piece.loads(graph.analysis)]
    for name, places in rows.written.items():
        stored_at = {write.index for _, write in places}
        if any(load.buffer == name and load.index not in stored_at for load in loads):
            return False
    gathered = {write.buffer for piece in columns.pieces for write in piece.writes}
    return not gathered & rows.loaded.keys()


def _renamed_pieces(
    pieces: Sequence[Piece], renaming: dict[Symbol, Index], analysis: Analysis
) -> list[Piece]:
    return [piece.rename(renaming, piece.inner, analysis) for piece in pieces]
