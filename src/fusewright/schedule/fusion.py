"""Fusion: nests that share data move under the same outer loops, the pair that saves most bytes
first.

Before:
```
nest [i0<196608]                    store t[i0]:  x[i0] + y[i0]
nest [i0<256] inner [r0<768]        sum   s[i0]:  t[768*i0 + r0]
nest [i0<256, i1<768]               store u[768*i0 + i1]:  t[768*i0 + i1] - s[i0]
```
After:
```
nest [i0<256]
  store t[768*i0 + r0] over [r0<768]:  x[768*i0 + r0] + y[768*i0 + r0]
  sum   s[i0] over [r0<768]:           t[768*i0 + r0]
  store u[768*i0 + r0] over [r0<768]:  t[768*i0 + r0] - s[i0]
```
Candidates are found by shared buffer: the writer of a buffer with each reader, and neighbouring
readers with each other, so their number grows with the program and not with its square.
`why_not_fuse` says why a pair stays apart.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from fusewright.ir.index import LoopSymbol, extent
from fusewright.ir.limits import WALKED_ELEMENTS
from fusewright.records import record, replace
from fusewright.schedule.align import Alignment, align
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.dependencies import Dependencies
from fusewright.schedule.effects import Effects
from fusewright.schedule.nest import Access, Nest, Piece, Step, step_effects

PIECES_LIMIT = 64
"""A nest with more pieces than this is not fused further: its kernel would spill and compile
slowly.
"""

BUFFERS_LIMIT = 40
"""A nest that touches more buffers than this is not fused further."""

ALIGNMENTS_TRIED = 4
"""The number of shared accesses that are tried as the one to align by."""

SMALL_WORK = 1 << 15
"""Points of all loops below which parallelism does not matter."""

LITTLE_SAVED = 8
"""Of bytes that a nest moves, one of so many is little to save."""

NEIGHBOUR_DISTANCE = 64
"""Steps of the program that two readers of a buffer may lie apart: fusing them keeps other buffers
alive longer.
"""

SMALL_SHARE = 4
"""What is this many times smaller than what is read for it may be stored early."""


@record(frozen=False)
class Graph:
    """The steps of a program while they are fused."""

    steps: list[Step | None]
    """None where a step is gone: inlined, or fused into another."""

    dependencies: Dependencies
    readers: dict[str, set[int]]
    """Steps that read each buffer or change its memory, library calls and copies among them."""

    writer: dict[str, int]
    kept: frozenset[str]
    """Buffers that the caller gets: they stay in memory whoever reads them."""

    analysis: Analysis

    @property
    def left(self) -> list[int]:
        """The numbers of the steps that are not gone."""
        return [number for number, step in enumerate(self.steps) if step is not None]

    @staticmethod
    def of(steps: Sequence[Step | None], kept: frozenset[str], analysis: Analysis) -> Graph:
        """The graph of steps that stand where their first statement does. Nests of several pieces
        are joined from nests of one, since dependencies follow from the program's order.
        """
        fused = [step for step in steps if isinstance(step, Nest) and len(step.pieces) > 1]
        if not fused:
            return Graph._of_statements(steps, kept, analysis)
        single = list(steps)
        for nest in fused:
            for position, pieces in groupby(nest.pieces, lambda piece: piece.position):
                single[position] = replace(nest, pieces=tuple(pieces))
        graph = Graph._of_statements(single, kept, analysis)
        for nest in fused:
            first, *others = dict.fromkeys(piece.position for piece in nest.pieces)
            for position in others:
                joined = [piece for piece in nest.pieces if piece.position <= position]
                join(graph, first, position, nest.outer, joined)
        return graph

    @staticmethod
    def _of_statements(
        steps: Sequence[Step | None], kept: frozenset[str], analysis: Analysis
    ) -> Graph:
        nothing = Effects((), ())
        effects = [step_effects(step, analysis) if step else nothing for step in steps]
        readers: dict[str, set[int]] = {}
        writer: dict[str, int] = {}
        for number, effect in enumerate(effects):
            for name in (*effect.reads, *effect.overwrites):
                readers.setdefault(name, set()).add(number)
            writer.update(dict.fromkeys(effect.writes, number))
        dependencies = Dependencies(effects, analysis.memory)
        return Graph(list(steps), dependencies, readers, writer, kept, analysis)

    def nest(self, number: int) -> Nest | None:
        """The nest at a step, or None where there is none."""
        step = self.steps[number]
        return step if isinstance(step, Nest) else None


def fuse(graph: Graph, changed: Collection[int] | None = None) -> None:
    """Fuse pairs until none is left that saves bytes and may be fused. Changes `graph` in place.
    `changed`: the only steps that are looked at, beside their partners; by default all.
    """
    queue: list[Candidate] = []
    version = [0] * len(graph.steps)
    steps = range(len(graph.steps)) if changed is None else changed
    for step in steps:
        others = (other for other in partners(graph, step) if other > step or other not in steps)
        _push(queue, graph, step, others)
    refused: set[tuple[int, int, int, int]] = set()
    while queue:
        *_, first, second = heapq.heappop(queue)
        attempt = (first, second, version[first], version[second])
        if graph.nest(first) is None or graph.nest(second) is None or attempt in refused:
            continue
        fusion = _try(graph, first, second)
        if isinstance(fusion, str):
            refused.add(attempt)
            continue
        pieces = (*fusion.left().pieces, *fusion.right().pieces)
        join(graph, first, second, fusion.outer, pieces)
        version[first] += 1
        _push(queue, graph, first, partners(graph, first))


def why_not_fuse(graph: Graph, first: int, second: int) -> str | None:
    """The reason why two steps are not fused, or None when they may be."""
    fusion = _try(graph, min(first, second), max(first, second))
    return fusion if isinstance(fusion, str) else None


# Candidates ---------------------------------------------------------------------------------------


def partners(graph: Graph, step: int) -> Iterator[int]:
    """Steps that share a buffer with `step`, in program order."""
    nest = graph.nest(step)
    if nest is None:
        return iter(())
    others: set[int] = set()
    for name in nest.written:
        others.update(graph.readers.get(name, ()))
    for name in nest.loaded:
        if name in graph.writer:
            others.add(graph.writer[name])
        others.update(_neighbours(step, graph.readers[name]))
    others.discard(step)
    return (other for other in sorted(others) if graph.nest(other) is not None)


def _neighbours(step: int, readers: set[int]) -> Iterator[int]:
    """The nearest reader on either side."""
    below = [other for other in readers if other < step]
    above = [other for other in readers if other > step]
    if below:
        yield max(below)
    if above:
        yield min(above)


Candidate = tuple[bool, int, bool, int, int, int]
"""Whether columns are gathered of what is gathered along rows, too; bytes saved, negated; whether
columns are gathered; distance; the two steps. The least comes first: what rows and columns both
read is to be computed where the rows are.
"""


def _push(queue: list[Candidate], graph: Graph, step: int, others: Iterator[int]) -> None:
    for other in others:
        first, second = min(step, other), max(step, other)
        saved = bytes_saved(graph, first, second)
        if saved > 0:
            nests = graph.nest(first), graph.nest(second)
            columns = any(nest.gathers_columns for nest in nests if nest is not None)
            waits = columns and _waits_for_rows(graph, first, second)
            heapq.heappush(queue, (waits, -saved, columns, second - first, first, second))


def _waits_for_rows(graph: Graph, first: int, second: int) -> bool:
    """Whether the second step gathers columns of what the first writes, and another gathers all of
    it along rows that a program holds.
    """
    left, right = graph.nest(first), graph.nest(second)
    if left is None or right is None or not right.gathers_columns:
        return False
    readers = {number for name in left.written for number in graph.readers.get(name, ())}
    others = (graph.nest(number) for number in readers - {first, second})
    return any(nest is not None and _gathers_rows_of(nest, left) for nest in others)


def _gathers_rows_of(nest: Nest, written: Nest) -> bool:
    """Whether a nest gathers along rows of as many elements as another writes."""
    if nest.gathers_columns or nest.is_product:
        return False
    longest = nest.analysis.limits_of(nest.device).longest_row
    points = written.analysis.product(map(extent, written.outer))
    for piece in nest.pieces:
        if piece.is_reduction and len(piece.inner) == 1:
            length = extent(piece.inner[0])
            rows = nest.analysis.product(map(extent, nest.outer))
            if length.is_constant and int(length) <= longest and rows * length == points:
                return True
    return False


def bytes_saved(graph: Graph, first: int, second: int) -> int:
    """Bytes that need not move when the two are one: shared reads, buffers that leave memory."""
    left, right = graph.nest(first), graph.nest(second)
    if left is None or right is None:
        return 0
    both = {first, second}
    total = 0
    for name in left.loaded:
        if name in right.loaded:
            total += graph.analysis.bytes(name)
    for writing, reading in ((left, right), (right, left)):
        for name in writing.written:
            if name in reading.loaded:
                leaves = name not in graph.kept and graph.readers[name] <= both
                total += graph.analysis.bytes(name) * (2 if leaves else 1)
    return total


# Decision -----------------------------------------------------------------------------------------


def _try(graph: Graph, first: int, second: int) -> Alignment | str:
    """The fusion of two steps, or the reason against it. `first` comes first in the program."""
    reason = why_not_join(graph, first, second)
    if reason is not None:
        return reason
    if graph.dependencies.must_precede(second, first):
        first, second = second, first
    left, right = graph.nest(first), graph.nest(second)
    assert left is not None and right is not None
    shared = [name for name in left.written if name in right.loaded]
    depends = bool(shared)
    if any(piece.kind == "gather" for piece in (*left.pieces, *right.pieces)):
        return "a stripe of rows stays by itself"
    if not left.analysis.stored_products.isdisjoint(shared):
        return "its matrix product stores what it reads"
    if right.is_product:
        return "a matrix product begins its kernel"
    if left.is_product and (not depends or any(not p.is_store or p.inner for p in right.pieces)):
        return "only stores at its points follow a matrix product"
    if not depends and abs(second - first) > NEIGHBOUR_DISTANCE and not _is_by_product(left, right):
        return "they only read the same data, far apart"
    return _best_alignment(left, right, bytes_saved(graph, first, second))


def _is_by_product(left: Nest, right: Nest) -> bool:
    """Whether a nest reads nothing but what an earlier one reads, and stores so much less that it
    may be stored so much earlier: positions of what is gathered, say, or which elements it was.
    """
    analysis = left.analysis
    if not right.loaded.keys() <= left.loaded.keys():
        return False
    read, stored = (sum(map(analysis.bytes, names)) for names in (right.loaded, right.written))
    return SMALL_SHARE * stored <= read


def why_not_join(graph: Graph, first: int, second: int) -> str | None:
    """Why two steps cannot be one, whatever their loops; None when they can."""
    left, right = graph.nest(first), graph.nest(second)
    if left is None or right is None:
        return "a library call or a copy has no loops to fuse"
    if left.device != right.device:
        return "they are on different devices"
    for nest in (left, right):
        if any(piece.kind == "scatter" for piece in nest.pieces):
            return "a scatter stays by itself"
    if len(left.pieces) + len(right.pieces) > PIECES_LIMIT:
        return f"together they have more than {PIECES_LIMIT} pieces"
    touched = left.loaded.keys() | right.loaded.keys() | left.written.keys() | right.written.keys()
    if len(touched) > BUFFERS_LIMIT:
        return f"together they touch more than {BUFFERS_LIMIT} buffers"
    dependencies = graph.dependencies
    if dependencies.between(first, second) or dependencies.between(second, first):
        return "a third step lies between them"
    return None


def _best_alignment(left: Nest, right: Nest, saved: int) -> Alignment | str:
    """The first alignment, by the largest shared access, in which every value is at hand where it
    is read. `saved`: bytes that need not move then.
    """
    reason = "they share no access"
    for left_place, right_place in _shared_accesses(left, right)[:ALIGNMENTS_TRIED]:
        alignment = align(left, left_place, right, right_place)
        if isinstance(alignment, str):
            reason = alignment
            continue
        obstacle = (
            _misses(left, right, alignment)
            or _too_serial(left, right, alignment)
            or _bends_stores(left, right, alignment)
            or _bends_product(left, alignment)
            or _turns_across(alignment, saved)
        )
        if obstacle is None:
            return alignment
        reason = obstacle
    return reason


Place = tuple[Piece, Access]


def _shared_accesses(left: Nest, right: Nest) -> list[tuple[Place, Place]]:
    """Pairs of accesses to one buffer, one of each nest; those with most bytes and loops first."""
    shared: list[tuple[int, int, int, Place, Place]] = []
    for name in dict.fromkeys((*left.written, *left.loaded)):
        for a in _places(left, name):
            for b in _places(right, name):
                if a[1].is_affine and b[1].is_affine:
                    loops = len(a[1].index.free()) + len(b[1].index.free())
                    size = left.analysis.bytes(name)
                    shared.append((-size, -loops, len(shared), a, b))
    return [(a, b) for *_, a, b in sorted(shared, key=lambda item: item[:3])]


def _places(nest: Nest, name: str) -> Sequence[Place]:
    """The places where a nest writes or loads a buffer: the writes, and the first load at each
    index.
    """
    loads = {access.index: (piece, access) for piece, access in reversed(nest.loaded.get(name, ()))}
    return (*nest.written.get(name, ()), *loads.values())


def _misses(left: Nest, right: Nest, alignment: Alignment) -> str | None:
    """Whether `right` loads an element that `left` has not written by then at the same point of the
    outer loops.
    """
    left_renaming = alignment.left_side.renaming()
    right_renaming = alignment.right_side.renaming()
    substitute = left.analysis.substitute
    for name, places in left.written.items():
        if name not in right.loaded:
            continue
        stored_at = {substitute(write.index, left_renaming) for _, write in places}
        for _, load in right.loaded[name]:
            if not load.is_affine or substitute(load.index, right_renaming) not in stored_at:
                return f"{name} is read at {load.index}, not where its point writes it"
    return None


def _too_serial(left: Nest, right: Nest, alignment: Alignment) -> str | None:
    """Whether too few points of outer loops would be left for the work."""
    analysis = left.analysis
    points = analysis.points(symbol.extent for symbol in alignment.outer)
    limits = analysis.limits_of(left.device)
    if points >= limits.parallel_points:
        return None
    small = max(SMALL_WORK, points * limits.longest_tile)
    before = max(analysis.points(map(extent, nest.outer)) for nest in (left, right))
    if before > points and max(_work(left), _work(right)) > small:
        return f"only {points} independent points would be left"
    return None


def _bends_stores(left: Nest, right: Nest, alignment: Alignment) -> str | None:
    """Whether plain stores, which run over all their loops in any order, would need inner loops
    only for each other.
    """
    demoted = alignment.left_side.demoted or alignment.right_side.demoted
    if left.is_pointwise and right.is_pointwise and demoted:
        return "both only store, over different loops"
    return None


def _turns_across(alignment: Alignment, saved: int) -> str | None:
    """Whether large stores would walk across memory instead of along it, for little."""
    for side in (alignment.left_side, alignment.right_side):
        nest, analysis = side.nest, side.nest.analysis
        if not side.demoted or not analysis.limits_of(nest.device).walks_rows:
            continue
        demoted = set(side.demoted_loops())
        rest = [symbol for symbol in nest.outer if symbol not in demoted]
        if analysis.points(map(extent, nest.outer)) < WALKED_ELEMENTS:
            continue
        moved = sum(map(analysis.bytes, (*nest.loaded, *nest.written)))
        if LITTLE_SAVED * saved < moved and any(
            analysis.stride(access.index, symbol) == 1
            for piece in nest.pieces
            for access in piece.writes
            for symbol in rest
        ):
            return "its rows would lie across memory"
    return None


def _bends_product(left: Nest, alignment: Alignment) -> str | None:
    """Whether a matrix product would have other loops, or stores behind it loops of their own."""
    if left.is_product and (not alignment.left_side.is_unchanged() or alignment.right_side.demoted):
        return "a matrix product keeps its loops"
    return None


def _work(nest: Nest) -> int:
    """Points of all loops, of the piece that has most."""
    points = nest.analysis.points
    most = max(points(map(extent, piece.inner)) for piece in nest.pieces)
    return points(map(extent, nest.outer)) * most


# Change -------------------------------------------------------------------------------------------


def join(
    graph: Graph, first: int, second: int, outer: tuple[LoopSymbol, ...], pieces: Iterable[Piece]
) -> None:
    """Put one nest of all `pieces` in the place of `first`; `second` is gone."""
    ordered = tuple(sorted(pieces, key=lambda piece: piece.position))
    nest = Nest(outer=outer, pieces=ordered, analysis=graph.analysis)
    graph.steps[first], graph.steps[second] = nest, None
    graph.dependencies.contract(first, second)
    graph.writer.update(dict.fromkeys(nest.written, first))
    for name in nest.loaded:
        readers = graph.readers[name]
        readers.discard(second)
        readers.add(first)
