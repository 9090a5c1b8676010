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
from fusewright.ir.index import Index, contiguous_strides, extent, integer, loop
from fusewright.ir.program import Buffer, ComputedBuffer, Layout, Program, Reduction, Statement
from fusewright.ir.value import Number, Value
from fusewright.records import replace
from fusewright.schedule.analysis import Analysis

CHUNKS = 32
"""Chunks where the extent does not suggest another number."""

FEWEST_CHUNKS, MOST_CHUNKS = 16, 64

ENOUGH_POINTS = 16
"""With this many points of outer loops a reduction is parallel enough."""

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
    points = analysis.points(extent(symbol) for symbol in body.loops)
    reduced = analysis.points(extent(symbol) for symbol in body.reduction_loops)
    splits = body.kind in _KINDS and 0 < points < ENOUGH_POINTS and points * reduced >= LARGE
    return _partial_and_total(statement, body, analysis) if splits else None


def _partial_and_total(
    statement: ComputedBuffer, body: Reduction, analysis: Analysis
) -> tuple[ComputedBuffer, ComputedBuffer]:
    (output,) = statement.outputs
    cut = max(body.reduction_loops, key=lambda symbol: analysis.hint(extent(symbol)))
    chunks = _chunks(extent(cut))
    length = (extent(cut) + chunks - 1) // chunks
    chunk = loop(f"i{len(body.loops)}", chunks)
    rest = loop(cut.name, length)
    place = chunk.index * length + rest.index
    make = analysis.expressions
    value = make.substitute(body.value, {cut: place})
    if length * chunks != extent(cut):
        inside = make.apply("lt", make.index(place), make.index(extent(cut)))
        value = make.masked(inside, value, neutral(body.kind, value.dtype))
    size = (*output.layout.size, integer(chunks))
    layout = Layout(
        dtype=value.dtype,
        size=size,
        stride=contiguous_strides(size),
        device=output.layout.device,
    )
    partial = Buffer(name=_fresh(f"{output.name}_partial", analysis), layout=layout)
    analysis.buffers[partial.name] = partial
    first = Reduction(
        loops=(*body.loops, chunk),
        reduction_loops=tuple(rest if s == cut else s for s in body.reduction_loops),
        kind=body.kind,
        value=value,
    )
    second = _total(body, partial, chunks, analysis)
    return (
        ComputedBuffer(outputs=(partial,), body=first),
        ComputedBuffer(outputs=(output,), body=second),
    )


def _total(body: Reduction, partial: Buffer, chunks: int, analysis: Analysis) -> Reduction:
    over = loop("r0", chunks)
    place = partial.layout.index(tuple(s.index for s in (*body.loops, over)))
    value: Value = analysis.expressions.load(partial.name, place, partial.layout.dtype)
    return Reduction(loops=body.loops, reduction_loops=(over,), kind=body.kind, value=value)


def _chunks(extent: Index) -> int:
    """A number of chunks near `CHUNKS` that divides the extent; `CHUNKS` where none does."""
    numbers = range(FEWEST_CHUNKS, MOST_CHUNKS + 1)
    fitting = [n for n in numbers if extent % n == 0]
    return min(fitting, key=lambda n: (abs(n - CHUNKS), n)) if fitting else CHUNKS


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
