"""Two steps for a large reduction with little outer parallelism: partial results of chunks, then
their combination.

Before:
```
s: f32[] = reduce sum [] over [r0<1048576]
  yield x[r0]
```
After:
```
s_partial: f32[32] = reduce sum [i0<32] over [r0<32768]
  yield x[32768*i0 + r0]
s: f32[] = reduce sum [] over [r0<32]
  yield s_partial[r0]
```
A loop whose extent no suitable number of chunks divides is cut into equal chunks of which the last
runs over; the surplus points yield the kind's neutral element. Kinds that have none, or whose
result is a position, are left alone. Means and squared deviations (`welford`) are cut into equal
chunks only, and combined by how far the means of the chunks lie from that of all.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.chunks import Chunks, loop_to_cut, near_count
from fusewright.ir.index import Index, LoopSymbol, Symbol, extent, integer, product
from fusewright.ir.limits import HELD_ROWS, WALKED_ELEMENTS, WALKED_LANES, Limits
from fusewright.ir.neutral import COMBINATIONS, NEUTRAL_ELEMENTS, neutral
from fusewright.ir.program import (
    Buffer,
    ComputedBuffer,
    Pointwise,
    Program,
    Reduction,
    Statement,
)
from fusewright.ir.value import Value
from fusewright.records import replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.columns import (
    ROWS_OF_STRIPE,
    Places,
    gathered_rows,
    is_sum_of_columns,
    lies_across,
    matrices_of,
    places_of,
    summed_matrix,
    with_merged_loops,
)

LARGE = 1 << 15
"""Smaller reductions are not worth a second kernel."""

ROWS_OF_CHUNK = 16
"""Rows that lie across memory in a chunk at least: each chunk writes a row of partial results."""

NARROW = 32
"""Results next to each other up to which rows that lie across memory are taken together."""

HELD_LANES = 64
"""Results of rows that are taken together, where they come to as many: sums of four vectors stay in
registers while a kernel goes through memory. 262,144 rows of 8 take three quarters of the time that
they take in pages (an AMD EPYC).
"""

LANES_OF_NO_POWER = 128
"""About how many there are otherwise, some of which a masked vector has."""


def split_reductions(program: Program, analysis: Analysis) -> Program:
    """Split every large reduction that has few outer points."""
    statements: list[Statement] = []
    origins = dict(program.origins)
    rows = gathered_rows(program, analysis)
    places = places_of(program, rows, analysis)
    for place, statement in enumerate(program.statements):
        parts = _split_at_places(statement, places, rows, analysis)
        if parts is None:
            parts = _split(statement, analysis, rows, program.statements[place + 1 :])
        if not parts:
            statements.append(statement)
            continue
        statements.extend(parts)
        own = origins.get(statement.outputs[-1].name, ())
        for part in parts:
            origins.update({buffer.name: own for buffer in part.outputs})
    if len(statements) == len(program.statements):
        return program
    return replace(program, statements=tuple(statements), origins=origins)


def _split_at_places(
    statement: Statement, places: dict[int, Places], rows: frozenset[str], analysis: Analysis
) -> list[ComputedBuffer] | None:
    """The statements that take the place of a sum of columns, in stripes of rows of one place each;
    none: it stays whole. None: it is no such sum.
    """
    found = summed_matrix(statement, rows, analysis) if places else None
    if found is None:
        return None
    body, matrix = found
    own = places.get(matrix.step * matrix.rows)
    if own is None or matrix.step not in (own.row, own.step):
        return None
    assert isinstance(statement, ComputedBuffer), "it is a reduction"
    if matrix.step == own.row:
        return _partial_of_places(statement, body, (own.parts, own.count), analysis)
    if own.parts == 1:
        return []
    (loop,) = body.reduction_loops
    chunks = Chunks(cut=loop, count=own.parts, is_first=True)
    return _partial_and_total(statement, body, chunks, analysis)


def _partial_of_places(
    statement: ComputedBuffer, body: Reduction, counts: tuple[int, int], analysis: Analysis
) -> list[ComputedBuffer]:
    """Partial results of the parts of each place, and their combination. `counts`: of parts, and of
    places.
    """
    (output,), (loop,), (parts, places) = statement.outputs, body.reduction_loops, counts
    several = (count for count in counts if count > 1)
    chunk = [LoopSymbol(f"i{k}", count) for k, count in enumerate(several)]
    own = [LoopSymbol(f"i{k + len(chunk)}", s.extent) for k, s in enumerate(body.loops)]
    rest = LoopSymbol("r0", loop.extent // (parts * places))
    part = chunk[0].index if parts > 1 else integer(0)
    place = (part * rest.extent + rest.index) * places + chunk[-1].index
    renamed: dict[Symbol, Index] = {loop: place}
    renamed.update((old, new.index) for old, new in zip(body.loops, own, strict=True))
    value = analysis.expressions.substitute(body.value, renamed)
    outer = (*chunk, *own)
    partial = analysis.new_buffer(f"{output.name}_partial", output.layout, map(extent, outer))
    first = replace(body, loops=outer, reduction_loops=(rest,), value=value)
    over = tuple(LoopSymbol(f"r{k}", symbol.extent) for k, symbol in enumerate(chunk))
    point = tuple(symbol.index for symbol in (*over, *body.loops))
    total = replace(body, reduction_loops=over, value=analysis.load(partial, point))
    return [
        ComputedBuffer(outputs=(partial,), body=first),
        ComputedBuffer(outputs=(output,), body=total),
    ]


def _split(
    statement: Statement,
    analysis: Analysis,
    rows: frozenset[str],
    following: Sequence[Statement],
) -> list[ComputedBuffer]:
    """The statements that take the place of a large reduction; none: it stays whole."""
    if not isinstance(statement, ComputedBuffer) or not isinstance(statement.body, Reduction):
        return []
    body = statement.body
    if rows & matrices_of(body, analysis):
        body = with_merged_loops(body, analysis)
    narrow = _narrow_chunks(statement, body, analysis)
    if narrow is not None:
        parts = _partial_and_rest if _has_rest(statement, body, narrow) else _partial_and_total
        first, total = parts(statement, body, narrow, analysis)
        return [*(_split(first, analysis, rows, (total, *following)) or [first]), total]
    chunks = chunks_of(statement, body, analysis, rows)
    chunks = chunks or _walked_chunks(statement, body, following, analysis)
    if chunks is None:
        return []
    if body.kind != "welford":
        return _partial_and_total(statement, body, chunks, analysis)
    return _partial_and_combined(statement, body, chunks, analysis) if chunks.fit else []


def chunks_of(
    statement: ComputedBuffer,
    body: Reduction,
    analysis: Analysis,
    rows: frozenset[str] = frozenset(),
) -> Chunks | None:
    """How a reduction is cut into chunks; None: it is not. `rows`: buffers along whose rows others
    gather, which programs of stripes of rows may do at once with it (`stripes`).
    """
    points = analysis.points(symbol.extent for symbol in body.loops)
    reduced = analysis.points(symbol.extent for symbol in body.reduction_loops)
    can_split = body.kind in NEUTRAL_ELEMENTS or body.kind == "welford"
    if not can_split or points == 0 or points * reduced < LARGE:
        return None
    limits = analysis.limits_of(statement.outputs[0].layout.device)
    lanes = lanes_of(body, limits, analysis)
    tiles = -(-points // lanes)
    if reduced * lanes < limits.longest_tile:
        return None
    if rows and (stripes := _stripes_of(body, rows, limits, analysis)) is not None:
        return stripes
    if tiles >= limits.reductions:
        return None
    if body.kind != "welford" and limits.leaves_whole(tiles, reduced * lanes):
        return None
    count = -(-limits.chunks // tiles) if limits.shares_chunks else limits.chunks
    count = min(count, reduced * lanes // limits.shortest_chunk)
    return _in_chunks(body, count, analysis, is_first=lanes > 1) if count >= 2 else None


def _stripes_of(
    body: Reduction, rows: frozenset[str], limits: Limits, analysis: Analysis
) -> Chunks | None:
    """The chunks of a reduction along the columns of a matrix, along whose rows others gather; None
    where programs of stripes of rows are too few, or none of equal ones can do both, or how many
    there are is not known.
    """
    points = analysis.points(symbol.extent for symbol in body.loops)
    reduced = analysis.points(symbol.extent for symbol in body.reduction_loops)
    count = min(limits.stripes, reduced // ROWS_OF_STRIPE)
    if not limits.are_enough_stripes(count) or points > limits.longest_row:
        return None
    if not is_sum_of_columns(body, rows, limits, analysis):
        return None
    chunks = _in_chunks(body, count, analysis, is_first=True)
    return chunks if chunks.fit and limits.are_enough_stripes(chunks.count) else None


def _narrow_chunks(statement: ComputedBuffer, body: Reduction, analysis: Analysis) -> Chunks | None:
    """How a reduction is cut whose rows lie across memory and are close together, since fewer
    results than a vector or two lie next to each other: several rows become one. None: it is not.
    """
    limits = analysis.limits_of(statement.outputs[0].layout.device)
    points = analysis.product(symbol.extent for symbol in body.loops)
    reduced = analysis.points(symbol.extent for symbol in body.reduction_loops)
    if not limits.walks_rows or body.kind not in NEUTRAL_ELEMENTS or not points.is_constant:
        return None
    width = int(points)
    if not 1 < width <= NARROW or width * reduced < WALKED_ELEMENTS:
        return None
    steps = [load.index for load in analysis.loads(body.value)]
    cut = next(
        (
            loop
            for loop in body.reduction_loops
            if any(analysis.stride(index, loop) == width for index in steps)
        ),
        None,
    )
    if cut is None or lies_across(body, limits, analysis) is None:
        return None
    lanes = HELD_LANES if HELD_LANES % width == 0 else LANES_OF_NO_POWER
    count = min(lanes // width, analysis.hint(cut.extent))
    leaves_rest = body.reduction_loops == (cut,) and cut.extent.is_constant
    if lanes != HELD_LANES or not leaves_rest:
        count = near_count(cut.extent, count)
    if count < 2:
        return None
    return Chunks(cut=cut, count=count, is_first=True, is_interleaved=True)


def _walked_chunks(
    statement: ComputedBuffer,
    body: Reduction,
    following: Sequence[Statement],
    analysis: Analysis,
) -> Chunks | None:
    """How a reduction is cut whose rows lie across memory, so that threads can walk over rows that
    are too short to be shared; None: it is not, or a kernel goes through what it holds of them
    again for a later statement.
    """
    limits = analysis.limits_of(statement.outputs[0].layout.device)
    points = analysis.points(symbol.extent for symbol in body.loops)
    reduced = analysis.points(symbol.extent for symbol in body.reduction_loops)
    if not limits.walks_rows or body.kind not in NEUTRAL_ELEMENTS or points < limits.reductions:
        return None
    if points * reduced < WALKED_ELEMENTS:
        return None
    if lies_across(body, limits, analysis) is None:
        return None
    tiles = -(-points // min(WALKED_LANES, _neighbours(body, analysis)))
    count = min(-(-limits.chunks // tiles), reduced // ROWS_OF_CHUNK)
    if tiles >= limits.reductions or count < 2:
        return None
    if reduced <= HELD_ROWS and _is_read_again(statement, body, following, analysis):
        return None
    return _in_chunks(body, count, analysis, is_first=True)


def _neighbours(body: Reduction, analysis: Analysis) -> int:
    """Results whose elements lie next to each other in memory."""
    steps = [load.index for load in analysis.loads(body.value)]
    count = 1
    for loop in reversed(body.loops):
        if any(analysis.stride(index, loop) == count for index in steps):
            count *= max(1, analysis.hint(loop.extent))
    return count


def _is_read_again(
    statement: ComputedBuffer,
    body: Reduction,
    following: Sequence[Statement],
    analysis: Analysis,
) -> bool:
    """Whether a later statement that needs a reduction's results loads what it loads."""
    results = {output.name for output in statement.outputs}
    reduced = {load.buffer for load in analysis.loads(body.value)}
    for other in following:
        if not isinstance(other, ComputedBuffer):
            continue
        loaded = {load.buffer for load in analysis.loads(other.body.value)}
        if results & loaded:
            if reduced & loaded:
                return True
            results.update(output.name for output in other.outputs)
    return False


def _in_chunks(body: Reduction, count: int, analysis: Analysis, *, is_first: bool) -> Chunks:
    """About `count` chunks of one of the loops."""
    indices = [load.index for load in analysis.loads(body.value)]
    cut = loop_to_cut(body.reduction_loops, count, indices, analysis.hint)
    count = near_count(cut.extent, min(count, analysis.hint(cut.extent)))
    return Chunks(cut=cut, count=count, is_first=is_first)


def lanes_of(body: Reduction, limits: Limits, analysis: Analysis) -> int:
    """Neighbouring results that are computed together: more than one where what is reduced lies
    across memory.
    """
    along = None if limits.lanes == 1 else lies_across(body, limits, analysis)
    return 1 if along is None else max(1, min(limits.lanes, analysis.hint(along.extent)))


def _partial_and_total(
    statement: ComputedBuffer, body: Reduction, chunks: Chunks, analysis: Analysis
) -> list[ComputedBuffer]:
    """Partial results of the chunks, and their combination."""
    (output,) = statement.outputs
    (partial,), first = _partial(statement, body, chunks, analysis)
    over = LoopSymbol("r0", chunks.count)
    value = analysis.load(partial, chunks.point(over.index, body.loops))
    second = Reduction(loops=body.loops, reduction_loops=(over,), kind=body.kind, value=value)
    return [first, ComputedBuffer(outputs=(output,), body=second)]


def _has_rest(statement: ComputedBuffer, body: Reduction, chunks: Chunks) -> bool:
    """Whether what chunks leave of their loop is known, and may be combined with their results."""
    (output,) = statement.outputs
    is_alone = body.reduction_loops == (chunks.cut,) and chunks.cut.extent.is_constant
    return is_alone and not chunks.fit and output.layout.dtype is body.value.dtype


def _partial_and_rest(
    statement: ComputedBuffer, body: Reduction, chunks: Chunks, analysis: Analysis
) -> list[ComputedBuffer]:
    """The same of a loop that interleaved chunks do not divide: they are of as many turns as do,
    and what is left, less than a turn of each, is combined with their results. So the loop over
    them, which is long, has no condition.
    """
    (loop,) = body.reduction_loops
    make = analysis.expressions
    whole = int(loop.extent) // chunks.count * chunks.count
    divided = LoopSymbol(loop.name, whole)
    value = make.substitute(body.value, {loop: divided.index})
    own = replace(body, reduction_loops=(divided,), value=value)
    first, total = _partial_and_total(statement, own, replace(chunks, cut=divided), analysis)
    assert isinstance(total.body, Reduction)
    (over,) = total.body.reduction_loops
    place = over.index + whole
    inside = make.apply("lt", make.index(place), make.index(loop.extent))
    left = make.substitute(body.value, {loop: place})
    rest = make.masked(inside, left, neutral(body.kind, left.dtype))
    combined = make.apply(COMBINATIONS[body.kind], total.body.value, rest)
    return [first, replace(total, body=replace(total.body, value=combined))]


def _partial_and_combined(
    statement: ComputedBuffer, body: Reduction, chunks: Chunks, analysis: Analysis
) -> list[ComputedBuffer]:
    """Means and squared deviations of equal chunks, and what they come to together: a chunk's
    squares are off by its number of elements times the square of how far its mean is from that of
    all (Chan, Golub & LeVeque 1983). That one is taken from the first chunk's on, so that equal
    numbers have no deviation.
    """
    mean, squares = statement.outputs
    (means, partial), first = _partial(statement, body, chunks, analysis)
    make = analysis.expressions
    over = LoopSymbol("r0", chunks.count)

    def load(buffer: Buffer, chunk: Index) -> Value:
        return analysis.load(buffer, chunks.point(chunk, body.loops))

    def number(value: float) -> Value:
        return make.constant(value, mean.layout.dtype)

    def summed(value: Value) -> Reduction:
        return Reduction(loops=body.loops, reduction_loops=(over,), kind="sum", value=value)

    start = load(means, integer(0))
    layout = mean.layout
    moved = analysis.new_buffer(f"{mean.name}_moved", layout, map(extent, body.loops))
    from_start = make.apply("sub", load(means, over.index), start)
    share = make.apply("mul", from_start, number(1 / chunks.count))
    point = tuple(symbol.index for symbol in body.loops)
    middle = make.apply("add", start, analysis.load(moved, point))
    off = make.apply("sub", load(means, over.index), analysis.load(mean, point))
    elements = product(
        chunks.length if symbol == chunks.cut else symbol.extent for symbol in body.reduction_loops
    )
    weight = make.cast(make.index(elements), layout.dtype)
    weighted = make.apply("mul", make.apply("mul", off, off), weight)
    total = make.apply("add", load(partial, over.index), weighted)
    return [
        first,
        ComputedBuffer(outputs=(moved,), body=summed(share)),
        ComputedBuffer(outputs=(mean,), body=Pointwise(loops=body.loops, value=middle)),
        ComputedBuffer(outputs=(squares,), body=summed(total)),
    ]


def _partial(
    statement: ComputedBuffer, body: Reduction, chunks: Chunks, analysis: Analysis
) -> tuple[tuple[Buffer, ...], ComputedBuffer]:
    """Buffers of partial results, one for each output, and the statement that computes them."""
    loops = chunks.loops(body.loops, body.reduction_loops)
    make = analysis.expressions
    value = make.substitute(body.value, {**loops.renamed, chunks.cut: loops.place})
    partials = tuple(
        analysis.new_buffer(f"{output.name}_partial", output.layout, map(extent, loops.outer))
        for output in statement.outputs
    )
    first = Reduction(
        loops=loops.outer,
        reduction_loops=loops.inner,
        kind=body.kind,
        value=chunks.within(make, loops.place, body.kind, value),
    )
    return partials, ComputedBuffer(outputs=partials, body=first)
