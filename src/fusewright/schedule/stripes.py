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
    """The loops over stripes, and the loops over the rows of one."""

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


def join_columns_again(graph: Graph, number: int) -> None:
    """Join a nest of stripes of rows, each of which is computed in parts at once, with nests of
    columns of a part: those in equal stripes, of which everything is at hand. Changes `graph` in
    place.
    """
    nest = graph.nest(number)
    if nest is None or not any(piece.kind == "gather" for piece in nest.pieces):
        return
    for other in [*partners(graph, number)]:
        columns, striped = graph.nest(other), graph.nest(number)
        assert striped is not None
        pieces = None if columns is None else _gathered_with(columns, striped)
        if pieces is None or why_not_join(graph, *sorted((number, other))) is not None:
            continue
        if graph.dependencies.must_precede(other, number):
            continue
        first, second = sorted((number, other))
        join(graph, first, second, striped.outer, (*striped.pieces, *pieces))
        number = first


def _gathered_with(nest: Nest, striped: Nest) -> list[Piece] | None:
    """The pieces of a nest of columns as sums that are carried from row to row of these stripes;
    None: it is something else, or reads what is not at hand there.
    """
    analysis = nest.analysis
    walks, rows = {piece.inner for piece in nest.pieces}, {piece.inner for piece in striped.pieces}
    if len(walks) != 1 or any(piece.kind not in NEUTRAL_ELEMENTS for piece in nest.pieces):
        return None
    inner = next((loops for loops in rows if loops), ())
    (walk,) = walks
    loops = (*nest.outer[:-1], *walk, *nest.outer[-1:])
    places = (*striped.outer, *inner)
    if [*map(extent, loops)] != [*map(extent, places)] or len(inner) != 1:
        return None
    renamed: dict[Symbol, Index] = {old: new.index for old, new in zip(loops, places, strict=True)}
    pieces = []
    for piece in nest.pieces:
        moved = piece.rename(renamed, inner, analysis)
        gathered = replace(moved, kind="gather", mode=piece.kind)
        if any(set(striped.outer[-len(walk) :]) & w.index.free() for w in gathered.writes):
            return None
        pieces.append(gathered)
    at_hand = {
        (name, access.index) for name, accesses in striped.loaded.items() for _, access in accesses
    }
    at_hand |= {(write.buffer, write.index) for piece in striped.pieces for write in piece.writes}
    loads = {(load.buffer, load.index) for piece in pieces for load in piece.loads(analysis)}
    return pieces if loads <= at_hand else None


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
    nest = _apart(nest, rows.inner.extent)
    if len(nest.outer) < 2 or nest.outer[-1].extent != rows.inner.extent:
        return None
    limits = nest.analysis.limits_of(nest.device)
    count = nest.analysis.product(map(extent, nest.outer[:-1]))
    if not count.is_constant or not limits.are_enough_stripes(int(count)):
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
    """A nest whose last outer loop is apart into chunks and columns, where it may be both."""
    *others, loop = nest.outer or (None,)
    if loop is None or loop.extent == length:
        return nest
    if not loop.extent.is_constant or int(loop.extent) % int(length):
        return nest
    make = nest.analysis.loop
    count = len(others)
    outer = (*others, make(f"i{count}", loop.extent // length), make(f"i{count + 1}", length))
    place = outer[-2].index * length + outer[-1].index
    pieces = _renamed_pieces(nest.pieces, {loop: place}, nest.analysis)
    return replace(nest, outer=outer, pieces=tuple(pieces))


def _row_of(index: Index, nest: Nest, piece: Piece, rows: _Rows) -> Index | None:
    """The row that a load of a column touches, as a number whose digits are the loops over chunks
    and those of the piece; None: it touches something else.
    """
    *chunks, column = nest.outer
    loops = (*chunks, *piece.inner)
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
    analysis, (*chunks, column) = nest.analysis, nest.outer
    old = (*chunks, *walked)
    outer = tuple(analysis.loop(f"i{k}", symbol.extent) for k, symbol in enumerate(old))
    walks: dict[Symbol, Index] = {o: new.index for o, new in zip(old, outer, strict=True)}
    pieces = []
    for piece in nest.pieces:
        own: dict[Symbol, Index] = {chunk: walks[chunk] for chunk in chunks}
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
