"""Squared deviations from a mean in the pass over memory that sums the elements up, by Welford's
algorithm, where a kernel would read long rows twice.

Before:
```
s: f32[64] = reduce sum [i0<64] over [r0<100000]
  yield x[100000*i0 + r0]
q: f32[64] = reduce sum [i0<64] over [r0<100000]
  yield (x[100000*i0 + r0] - s[i0] * 1e-05) ** 2
```
After, with `s` as it is:
```
q_mean: f32[64], q: f32[64] = reduce welford [i0<64] over [r0<100000]
  yield x[100000*i0 + r0]
```
`q` no longer needs `s`, so that one kernel computes both. The sum stays a sum, which overflows and
rounds as the program's own does. The mean may also lie in memory, as that of a batch norm does
which is kept for backward.
"""

from __future__ import annotations

from fusewright.ir.index import Index, Symbol, extent, integer, product
from fusewright.ir.program import (
    Buffer,
    ComputedBuffer,
    Pointwise,
    Program,
    Reduction,
    Statement,
)
from fusewright.ir.value import Apply, Constant, IndexValue, Load, Value
from fusewright.records import replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.split import chunks_of, lanes_of


def deviations_at_once(program: Program, analysis: Analysis) -> Program:
    """Gather squared deviations from a mean together with the sum behind it, where that saves
    reading rows again.
    """
    known: dict[str, ComputedBuffer] = {}
    statements: list[Statement] = []
    for statement in program.statements:
        match statement:
            case ComputedBuffer(outputs=(output,), body=Reduction(kind="sum") as body):
                known[output.name] = statement
                statements.append(_at_once(statement, body, known, analysis))
            case ComputedBuffer(outputs=(output,), body=Pointwise()):
                known[output.name] = statement
                statements.append(statement)
            case _:
                statements.append(statement)
    return replace(program, statements=tuple(statements))


def _at_once(
    statement: ComputedBuffer,
    body: Reduction,
    known: dict[str, ComputedBuffer],
    analysis: Analysis,
) -> ComputedBuffer:
    """A sum of squared deviations as one of the two results of a Welford reduction; any other
    statement as it is. `known`: earlier sums and pointwise statements, by the buffer.
    """
    value = _deviating(body, known, analysis)
    if value is None or _is_held(statement, body, analysis):
        return statement
    (squares,) = statement.outputs
    at_once = replace(body, kind="welford", value=value)
    mean = Buffer(name=analysis.free_name(f"{squares.name}_mean"), layout=squares.layout)
    result = ComputedBuffer(outputs=(mean, squares), body=at_once)
    chunks = chunks_of(result, at_once, analysis)
    if chunks is not None and not chunks.fit:
        return statement
    analysis.buffers[mean.name] = mean
    return result


def _is_held(statement: ComputedBuffer, body: Reduction, analysis: Analysis) -> bool:
    """Whether a kernel reads the rows once, however often it walks over them."""
    limits = analysis.limits_of(statement.outputs[0].layout.device)
    lies_across = lanes_of(body, limits, analysis) > 1
    longest = limits.held_across if lies_across else limits.held_row
    elements = product(map(extent, body.reduction_loops))
    return not longest or (elements.is_constant and int(elements) <= longest)


def _deviating(
    body: Reduction, known: dict[str, ComputedBuffer], analysis: Analysis
) -> Value | None:
    """The value whose squared deviations from its own mean a body sums up; None: it does not."""
    match body.value:
        case Apply(
            operation="mul",
            arguments=(
                Apply(operation="sub", arguments=(value, mean)) as deviation,
                Apply() as again,
            ),
        ) if deviation is again:
            pass
        case _:
            return None
    mean = _computed(mean, body, known, analysis)
    total = _total_behind(mean, product(map(extent, body.reduction_loops)))
    behind = None if total is None else known.get(total.buffer)
    if total is None or behind is None or not isinstance(behind.body, Reduction):
        return None
    other = behind.body
    inside, outside = (*other.loops, *other.reduction_loops), (*body.loops, *body.reduction_loops)
    if list(map(extent, inside)) != list(map(extent, outside)):
        return None
    if len(other.loops) != len(body.loops):
        return None
    renamed: dict[Symbol, Index] = {
        old: new.index for old, new in zip(inside, outside, strict=True) if old != new
    }
    point = tuple(symbol.index for symbol in body.loops)
    reads_own = total.index == behind.outputs[0].layout.index(point)
    same = analysis.expressions.substitute(other.value, renamed) is value
    return value if reads_own and same and value.dtype.is_float else None


def _computed(
    value: Value, body: Reduction, known: dict[str, ComputedBuffer], analysis: Analysis
) -> Value:
    """What an element in memory is computed from, where a pointwise statement has one for each
    point of a body's outer loops; any other value as it is.
    """
    statement = known.get(value.buffer) if isinstance(value, Load) else None
    if not isinstance(value, Load) or statement is None:
        return value
    if not isinstance(statement.body, Pointwise) or value.dtype != statement.body.value.dtype:
        return value
    loops, outer = (
        [symbol for symbol in symbols if symbol.extent != 1]
        for symbols in (statement.body.loops, body.loops)
    )
    if list(map(extent, loops)) != list(map(extent, outer)):
        return value
    renamed: dict[Symbol, Index] = dict.fromkeys(statement.body.loops, integer(0))
    renamed.update((old, new.index) for old, new in zip(loops, outer, strict=True))
    (output,) = statement.outputs
    point = tuple(renamed[symbol] for symbol in statement.body.loops)
    if value.index != output.layout.index(point):
        return value
    return analysis.expressions.substitute(statement.body.value, renamed)


def _total_behind(mean: Value, elements: Index) -> Load | None:
    """The load of a sum which a value divides by a number of elements."""
    match mean:
        case Apply(operation="mul", arguments=(Load() as total, Constant(value=share))):
            return total if elements.is_constant and share == 1 / int(elements) else None
        case Apply(operation="div", arguments=(Load() as total, Constant(value=count))):
            return total if elements.is_constant and count == int(elements) else None
        case Apply(operation="div", arguments=(Load() as total, IndexValue(index=index))):
            return total if index == elements else None
    return None
