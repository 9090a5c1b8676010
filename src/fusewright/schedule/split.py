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
result is a position, are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, LoopSymbol, Symbol, contiguous_strides, extent
from fusewright.ir.limits import Limits
from fusewright.ir.program import Buffer, ComputedBuffer, Layout, Program, Reduction, Statement
from fusewright.ir.value import Number, Value
from fusewright.records import replace
from fusewright.schedule.analysis import Analysis

LARGE = 1 << 15
"""Smaller reductions are not worth a second kernel."""


def split_reductions(program: Program, analysis: Analysis) -> Program:
    """Split every large reduction that has few outer points."""
    statements: list[Statement] = []
    origins = dict(program.origins)
    for statement in program.statements:
        pair = _split(statement, analysis)
        if pair is None:
            statements.append(statement)
            continue
        statements.extend(pair)
        partial, total = pair
        origins[partial.outputs[0].name] = origins.get(total.outputs[0].name, ())
    if len(statements) == len(program.statements):
        return program
    return replace(program, statements=tuple(statements), origins=origins)


def _split(
    statement: Statement, analysis: Analysis
) -> tuple[ComputedBuffer, ComputedBuffer] | None:
    if not isinstance(statement, ComputedBuffer) or not isinstance(statement.body, Reduction):
        return None
    body = statement.body
    points = analysis.points(symbol.extent for symbol in body.loops)
    reduced = analysis.points(symbol.extent for symbol in body.reduction_loops)
    if body.kind not in _KINDS or points == 0 or points * reduced < LARGE:
        return None
    limits = analysis.limits(statement.outputs[0].name)
    lanes = _lanes(body, limits, analysis)
    tiles = -(-points // lanes)
    if tiles >= limits.reductions or reduced * lanes < limits.longest_tile:
        return None
    count = -(-limits.chunks // tiles) if limits.shares_chunks else limits.chunks
    count = min(count, reduced * lanes // limits.shortest_chunk)
    if count < 2:
        return None
    return _partial_and_total(statement, body, analysis, count, chunk_first=lanes > 1)


def _lanes(body: Reduction, limits: Limits, analysis: Analysis) -> int:
    """Neighbouring results that are computed together: where more elements of loads are contiguous
    along them than along what is reduced.
    """
    if limits.lanes == 1:
        return 1
    indices = [load.index for load in analysis.loads(body.value)]
    every = (*body.loops, *body.reduction_loops)

    def contiguous(loops: tuple[LoopSymbol, ...]) -> tuple[int, LoopSymbol | None]:
        """Elements of loads that are contiguous along one of the loops, and the first of those."""
        elements, along = 0, None
        for symbol in loops:
            for index in indices:
                if analysis.stride(index, symbol) == 1:
                    elements += analysis.points(s.extent for s in every if s in index.free())
                    along = along or symbol
        return elements, along

    across, along = contiguous(body.loops)
    if along is None or contiguous(body.reduction_loops)[0] >= limits.across_share * across:
        return 1
    return max(1, min(limits.lanes, analysis.hint(along.extent)))


def _partial_and_total(
    statement: ComputedBuffer,
    body: Reduction,
    analysis: Analysis,
    count: int,
    *,
    chunk_first: bool,
) -> tuple[ComputedBuffer, ComputedBuffer]:
    """Partial results of about `count` chunks, which are the outermost loop where
    `chunk_first`, else the innermost; and their combination.
    """
    (output,) = statement.outputs
    cut = max(body.reduction_loops, key=lambda symbol: analysis.hint(symbol.extent))
    chunks = _chunks(cut.extent, min(count, analysis.hint(cut.extent)))
    length = (cut.extent + chunks - 1) // chunks
    remaining = tuple(
        LoopSymbol(f"i{place + chunk_first}", symbol.extent)
        for place, symbol in enumerate(body.loops)
    )
    chunk = LoopSymbol("i0" if chunk_first else f"i{len(remaining)}", chunks)
    rest = LoopSymbol(cut.name, length)
    place = chunk.index * length + rest.index
    make = analysis.expressions
    renamed: dict[Symbol, Index] = {
        old: new.index for old, new in zip(body.loops, remaining, strict=True) if old != new
    }
    value = make.substitute(body.value, {**renamed, cut: place})
    if length * chunks != cut.extent:
        inside = make.apply("lt", make.index(place), make.index(cut.extent))
        value = make.masked(inside, value, neutral(body.kind, value.dtype))
    loops = (chunk, *remaining) if chunk_first else (*remaining, chunk)
    size = tuple(map(extent, loops))
    layout = Layout(
        dtype=value.dtype,
        size=size,
        stride=contiguous_strides(size),
        device=output.layout.device,
    )
    partial = Buffer(name=_fresh(f"{output.name}_partial", analysis), layout=layout)
    analysis.buffers[partial.name] = partial
    first = Reduction(
        loops=loops,
        reduction_loops=tuple(rest if s == cut else s for s in body.reduction_loops),
        kind=body.kind,
        value=value,
    )
    second = _total(body, partial, chunks, analysis, chunk_first=chunk_first)
    return (
        ComputedBuffer(outputs=(partial,), body=first),
        ComputedBuffer(outputs=(output,), body=second),
    )


def _total(
    body: Reduction, partial: Buffer, chunks: int, analysis: Analysis, *, chunk_first: bool
) -> Reduction:
    over = LoopSymbol("r0", chunks)
    point = (over, *body.loops) if chunk_first else (*body.loops, over)
    place = partial.layout.index(tuple(symbol.index for symbol in point))
    value: Value = analysis.expressions.load(partial.name, place, partial.layout.dtype)
    return Reduction(loops=body.loops, reduction_loops=(over,), kind=body.kind, value=value)


def _chunks(extent: Index, count: int) -> int:
    """A number of chunks that divides the extent, at least half of what is wanted and at most
    twice; where none does, as many as are wanted.
    """
    fitting = [n for n in range(max(2, count // 2), 2 * count + 1) if extent % n == 0]
    return min(fitting, key=lambda n: (abs(n - count), n)) if fitting else count


def _fresh(name: str, analysis: Analysis) -> str:
    while name in analysis.buffers:
        name += "_"
    return name


# Neutral elements --------------------------------------------------------------------------------


def neutral(kind: str, dtype: DType) -> Number:
    """The element that changes no result of `kind`."""
    return _KINDS[kind](dtype)


def _lowest(dtype: DType) -> Number:
    if dtype.is_float:
        return -inf
    return -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0


def _highest(dtype: DType) -> Number:
    if dtype.is_float:
        return inf
    if dtype is DType.BOOL:
        return True
    return (1 << (dtype.bits - (dtype.kind == "signed"))) - 1


_KINDS: dict[str, Callable[[DType], Number]] = {
    "sum": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "any": lambda dtype: False,
    "all": lambda dtype: True,
    "xor": lambda dtype: 0,
    "max": _lowest,
    "min": _highest,
}
