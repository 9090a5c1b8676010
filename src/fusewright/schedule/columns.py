"""Sums of the columns of matrices along whose rows others gather, which programs of stripes of
rows take on the way (`stripes`): which there are, and into which stripes the rows come.

The gradient of embeddings of tokens and of places, 8 texts of 256 tokens, is gathered along columns
in two ways, both of which stripes of the rows of one place allow:
```
bias: f32[768] = reduce sum [i0<768] over [r0<2048]               g[768*r0 + i0]
places: f32[256, 768] = reduce sum [i0<256, i1<768] over [r0<8]   g[196608*r0 + 768*i0 + i1]
```
"""

from __future__ import annotations

from collections.abc import Collection

from fusewright.ir.contiguity import rows_lie_across
from fusewright.ir.forms import buffers_defined, buffers_read
from fusewright.ir.index import Index, LoopSymbol, Symbol, integer
from fusewright.ir.limits import Limits
from fusewright.ir.neutral import NEUTRAL_ELEMENTS
from fusewright.ir.program import ComputedBuffer, Pointwise, Program, Reduction, Statement
from fusewright.records import record, replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.simplify import walks_as_one

ROWS_OF_STRIPE = 8
"""Rows in a stripe at least: each stripe writes a row of partial results."""

MOST_PARTS = 4
"""Parts of its rows that a sum of a matrix' columns may leave out, but for one."""


# Rows ---------------------------------------------------------------------------------------------


def gathered_rows(program: Program, analysis: Analysis) -> frozenset[str]:
    """The buffers along whose rows something is gathered, or that such are made of, or that are
    made with what is gathered (`_made_of_rows`); without those whose columns are gathered together
    with what lies otherwise, which programs of stripes of rows do not: that would be read once
    more.
    """
    found: set[str] = set()
    mixed: set[str] = set()
    sums: list[str] = []
    for statement in reversed(program.statements):
        match statement:
            case ComputedBuffer(body=Reduction() as body, outputs=(output, *_)):
                limits = analysis.limits_of(output.layout.device)
                loops, value = body.reduction_loops, body.value
                if lies_across(body, limits, analysis) is None:
                    mixed |= matrices_of(body, analysis)
                    sums += [output.name for output in statement.outputs]
            case ComputedBuffer(body=Pointwise(loops=loops, value=value), outputs=(output,)):
                if output.name not in found:
                    continue
            case _:
                continue
        found.update(
            load.buffer
            for load in analysis.loads(value)
            if any(analysis.stride(load.index, loop) == 1 for loop in loops)
        )
    return frozenset((found | _made_of_rows(program, sums, analysis)) - mixed)


def _made_of_rows(program: Program, sums: Collection[str], analysis: Analysis) -> set[str]:
    """The buffers that are computed element by element with sums of their rows, or from such: the
    same kernel computes them, unless they also need what another makes from these sums.
    """
    bits = {name: 1 << place for place, name in enumerate(sums)}
    made: set[str] = set()
    beside: dict[str, int] = {}
    """Sums that a buffer is computed from in one kernel, a bit each."""
    behind: dict[str, int] = {}
    """Sums that another kernel or library call lies behind, before this buffer."""
    for statement in program.statements:
        match statement:
            case ComputedBuffer(body=body):
                reads = [load.buffer for load in analysis.loads(body.value)]
                outputs = [output.name for output in statement.outputs]
                joins = isinstance(body, Pointwise) or not bits.keys().isdisjoint(outputs)
            case _:
                reads, outputs = buffers_read(statement), buffers_defined(statement)
                joins = False
        near = far = 0
        for name in reads:
            near |= beside.get(name, 0)
            far |= behind.get(name, 0)
        if not joins:
            far |= near
        near &= ~far
        if near and isinstance(statement, ComputedBuffer) and isinstance(statement.body, Pointwise):
            made.update(outputs)
        for name in outputs:
            beside[name], behind[name] = near | bits.get(name, 0), far
    return made


# Sums of columns ----------------------------------------------------------------------------------


def lies_across(body: Reduction, limits: Limits, analysis: Analysis) -> LoopSymbol | None:
    """The loop along which neighbouring results are contiguous in memory, where what is reduced
    lies across it.
    """
    indices = [load.index for load in analysis.loads(body.value)]
    along = next(
        (loop for loop in body.loops for index in indices if analysis.stride(index, loop) == 1),
        None,
    )
    rows = [(index, body.reduction_loops) for index in indices]
    if along is None or not rows_lie_across(
        rows, body.loops, lambda loop: analysis.hint(loop.extent), limits.across_share
    ):
        return None
    return along


def matrices_of(body: Reduction, analysis: Analysis) -> set[str]:
    """The buffers that a reduction reads as matrices in memory, whose columns it gathers along."""
    points = max(1, analysis.points(symbol.extent for symbol in body.loops))

    def is_matrix(index: Index) -> bool:
        steps = [analysis.stride(index, loop) for loop in body.reduction_loops]
        is_contiguous = any(analysis.stride(index, loop) == 1 for loop in body.loops)
        return is_contiguous and all(
            step is not None and step != 0 and step % points == 0 for step in steps
        )

    return {load.buffer for load in analysis.loads(body.value) if is_matrix(load.index)}


def is_sum_of_columns(
    body: Reduction, rows: frozenset[str], limits: Limits, analysis: Analysis
) -> bool:
    """Whether a reduction is along the columns of a matrix of a known size, along whose rows others
    gather.
    """
    if any(not symbol.extent.is_constant for symbol in (*body.loops, *body.reduction_loops)):
        return False
    if body.kind not in NEUTRAL_ELEMENTS or not rows & matrices_of(body, analysis):
        return False
    return lies_across(body, limits, analysis) is not None


def with_merged_loops(body: Reduction, analysis: Analysis) -> Reduction:
    """A reduction over one loop in place of two where everything that it reads walks them as one,
    so that reductions of the same rows, whose loops differ, are cut into the same chunks.
    """
    loops: list[LoopSymbol] = []
    value = body.value
    for loop in body.reduction_loops:
        before = loops[-1:]
        indices = analysis.indices(value)
        if before and all(walks_as_one(index, before[0], loop, analysis) for index in indices):
            loops[-1] = LoopSymbol(loop.name, analysis.product((before[0].extent, loop.extent)))
            renamed: dict[Symbol, Index] = {before[0]: integer(0), loop: loops[-1].index}
            value = analysis.expressions.substitute(value, renamed)
        else:
            loops.append(loop)
    return replace(body, reduction_loops=tuple(loops), value=value)


# Places -------------------------------------------------------------------------------------------


@record
class SummedMatrix:
    """A matrix of which a reduction adds up the columns."""

    step: int
    """Elements from a row to the next."""

    rows: int
    limits: Limits


@record
class Places:
    """Matrices whose rows belong to places, as those of tokens do: columns are added up over all
    rows, and over those of each place.
    """

    row: int
    """Elements from a row to the next."""

    step: int
    """Elements from a row of a place to the next."""

    parts: int
    """The parts in which the rows of a place are added up."""

    @property
    def count(self) -> int:
        """The number of places."""
        return self.step // self.row


def places_of(program: Program, rows: frozenset[str], analysis: Analysis) -> dict[int, Places]:
    """By the elements of matrices, the places of their rows, where programs of stripes of rows can
    take those of a place, or of an equal part of them, and so add up columns for each place, too.
    """
    steps: dict[int, dict[int, SummedMatrix]] = {}
    for statement in program.statements:
        found = summed_matrix(statement, rows, analysis)
        if found is not None:
            _, matrix = found
            steps.setdefault(matrix.step * matrix.rows, {})[matrix.step] = matrix
    places: dict[int, Places] = {}
    for elements, known in steps.items():
        row, *longer = sorted(known)
        found_places = (_places(known[row], known[step]) for step in longer)
        first = next((found for found in found_places if found is not None), None)
        if first is not None:
            places[elements] = first
    return places


def _places(row: SummedMatrix, place: SummedMatrix) -> Places | None:
    """The places of the rows of a matrix of which another's are the rows of a place each; None:
    they have no such places, or too few rows have one, or stripes would be too few or too many.
    """
    limits, count = row.limits, place.step // row.step
    if place.step % row.step or place.rows < ROWS_OF_STRIPE:
        return None
    parts = max(1, min(limits.stripes // count, place.rows // ROWS_OF_STRIPE))
    while place.rows % parts:
        parts -= 1
    stripes = parts * count
    if not limits.are_enough_stripes(stripes) or stripes > 2 * limits.stripes:
        return None
    return Places(row.step, place.step, parts)


def summed_matrix(
    statement: Statement, rows: frozenset[str], analysis: Analysis
) -> tuple[Reduction, SummedMatrix] | None:
    """A reduction over one loop along the columns of a matrix of a known size, along whose rows
    others gather, and the matrix; None: a statement is none.
    """
    if not isinstance(statement, ComputedBuffer) or not isinstance(statement.body, Reduction):
        return None
    limits = analysis.limits_of(statement.outputs[0].layout.device)
    if not is_sum_of_columns(statement.body, rows, limits, analysis):
        return None
    body = with_merged_loops(statement.body, analysis)
    if len(body.reduction_loops) != 1:
        return None
    (loop,) = body.reduction_loops
    matrices = rows & matrices_of(body, analysis)
    steps = {
        analysis.stride(load.index, loop)
        for load in analysis.loads(body.value)
        if load.buffer in matrices
    }
    if len(steps) != 1:
        return None
    (step,) = steps
    points = analysis.points(symbol.extent for symbol in body.loops)
    if step is None or not step.is_constant or int(step) > MOST_PARTS * points:
        return None
    return body, SummedMatrix(int(step), int(loop.extent), limits)
