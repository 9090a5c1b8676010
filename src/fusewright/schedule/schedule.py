"""Scheduling as one straight function: from a Program of single bodies to ordered, fused groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from fusewright.context import CompileContext
from fusewright.ir.group import Group, Schedule, StepWork
from fusewright.ir.limits import LimitsOf, limits_of_cpu
from fusewright.ir.origin import Origin
from fusewright.ir.program import ComputedBuffer, Program
from fusewright.passes import Pass
from fusewright.records import replace
from fusewright.schedule.aligned_operands import align_operands
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.attention import attention_as_loops
from fusewright.schedule.batch import batch
from fusewright.schedule.convolutions import convolutions_as_products
from fusewright.schedule.dead_code import remove_dead_code, unread_buffers
from fusewright.schedule.effects import output_buffers
from fusewright.schedule.fusion import Graph, fuse
from fusewright.schedule.inline import inline
from fusewright.schedule.lifetimes import possible_reuses, with_lifetimes
from fusewright.schedule.mirror import mirror
from fusewright.schedule.moments import deviations_at_once
from fusewright.schedule.names import group_name
from fusewright.schedule.nest import Nest, Step, nest_of
from fusewright.schedule.order import order_steps, sums_last
from fusewright.schedule.parts import parts_at_once
from fusewright.schedule.products import products_as_loops
from fusewright.schedule.simplify import simplify
from fusewright.schedule.split import split_reductions
from fusewright.schedule.stages import build_group
from fusewright.schedule.stripes import stripes

PROGRAM_PASSES: Final = (
    Pass("dead-code", remove_dead_code),
    Pass("moments", deviations_at_once),
    Pass("operands", align_operands),
    Pass("products", products_as_loops),  # How rows lie decides whether the library is fast.
    Pass("split", split_reductions),  # Products may be sums, which it cuts as any other.
    Pass("attention", attention_as_loops),
    Pass("convolutions", convolutions_as_products),
)
"""Passes over the program's statements: `run(program, analysis)` gives the program after it."""

STEP_PASSES: Final = (Pass("inline", inline), Pass("mirror", mirror))
"""Passes over single steps, before anything depends on their order: `run(steps, kept, analysis)`
gives the steps after it.
"""


def simplify_nests(graph: Graph) -> None:
    """Simplify the loops of what fusion has made."""
    for number, step in enumerate(graph.steps):
        if isinstance(step, Nest):
            graph.steps[number] = simplify(step)


GRAPH_PASSES: Final = (
    Pass("fuse", fuse),
    Pass("simplify", simplify_nests),
    Pass("stripes", stripes),
    Pass("parts", parts_at_once),
    Pass("batch", batch),
)
"""Passes that join and change the steps of a graph in place: `run(graph)`."""

PASSES: Final = tuple(
    scheduler_pass.name for scheduler_pass in (*PROGRAM_PASSES, *STEP_PASSES, *GRAPH_PASSES)
)
"""Names of all passes, in the order in which they run."""


def schedule(
    program: Program,
    context: CompileContext,
    limits_of: LimitsOf = limits_of_cpu,
    passes: Collection[str] = PASSES,
) -> Schedule:
    """Fuse and order the statements of `program`; its values are made in `program.expressions`.

    `passes`: names of those that run, always in the order of `PASSES`. A schedule made without
    some computes the same.
    """
    analysis = Analysis(program, limits_of)
    program = run_program_passes(program, analysis, passes)
    steps = simplified_steps(program, analysis)
    graph = run_step_passes(program, steps, analysis, passes)
    return finished(program, graph)


Observer = Callable[[str, Program, Sequence[Step | None] | None], None]
"""Called with the name of each pass that has run, the program, and the steps once there are any."""


def _ignore(name: str, program: Program, steps: Sequence[Step | None] | None) -> None:
    pass


def run_program_passes(
    program: Program, analysis: Analysis, passes: Collection[str], observe: Observer = _ignore
) -> Program:
    """The program after those of `PROGRAM_PASSES` that are named."""
    for program_pass in PROGRAM_PASSES:
        if program_pass.name in passes:
            program = program_pass.run(program, analysis)
            observe(program_pass.name, program, None)
    return program


def run_step_passes(
    program: Program,
    steps: list[Step | None],
    analysis: Analysis,
    passes: Collection[str],
    observe: Observer = _ignore,
) -> Graph:
    """The steps after those of `STEP_PASSES` and `GRAPH_PASSES` that are named."""
    kept = output_buffers(program)
    for step_pass in STEP_PASSES:
        if step_pass.name in passes:
            steps = step_pass.run(steps, kept, analysis)
            observe(step_pass.name, program, steps)
    graph = Graph.of(steps, kept | unread_buffers(steps, kept, analysis), analysis)
    for graph_pass in GRAPH_PASSES:
        if graph_pass.name in passes:
            graph_pass.run(graph)
            observe(graph_pass.name, program, graph.steps)
    return graph


def simplified_steps(program: Program, analysis: Analysis) -> list[Step | None]:
    """One step a statement; each body a nest of its own, its loops simplified."""
    return [
        simplify(nest_of(statement, position, analysis))
        if isinstance(statement, ComputedBuffer)
        else statement
        for position, statement in enumerate(program.statements)
    ]


def finished(program: Program, graph: Graph) -> Schedule:
    """The steps in order, each with the memory that ends with it. Leaves `graph` as it is."""
    order = sums_last(graph, order_steps(graph), program.mutations)
    works = [_work(program, graph, number) for number in order]
    return Schedule(
        program=program,
        steps=with_lifetimes(program, works),
        in_pieces=frozenset(graph.analysis.in_pieces),
    )


def _work(program: Program, graph: Graph, number: int) -> StepWork:
    """A step as the next stage wants it: nests become groups."""
    step = graph.steps[number]
    assert step is not None
    if not isinstance(step, Nest):
        return step

    def leaves_memory(name: str) -> bool:
        return name not in graph.kept and graph.readers.get(name, set()) <= {number}

    origins = _origins(program, step)
    name = group_name(step, origins)
    group = build_group(step, name, leaves_memory, origins)
    if not _holds_scans(group, graph.analysis):
        scanned = {piece.writes[0].buffer for piece in step.pieces if piece.is_scan}
        group = build_group(
            step, name, lambda buffer: buffer not in scanned and leaves_memory(buffer), origins
        )
    taken_over = tuple((piece.writes[0].buffer, piece.base) for piece in step.pieces if piece.base)
    bases = tuple(graph.analysis.buffers[base] for _, base in taken_over)
    return replace(
        group,
        reads=(*group.reads, *(base for base in bases if base not in group.reads)),
        reuses=(*taken_over, *_chosen_reuses(group, graph.analysis)),
    )


def _holds_scans(group: Group, analysis: Analysis) -> bool:
    """Whether a kernel has the rows that scans fill where later stages read them; it cannot compute
    them again.
    """
    return not group.scanned_rows or analysis.limits_of(group.device).holds_rows(group)


def _chosen_reuses(group: Group, analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """The memory that a group may take over: none, where it computes rows again from what they were
    made of.
    """
    pairs = possible_reuses(group, analysis)
    if not pairs or not any(local.size for local in group.locals):
        return pairs
    return pairs if analysis.limits_of(group.device).holds_rows(group) else ()


def _origins(program: Program, nest: Nest) -> tuple[Origin, ...]:
    """Origins of all statements of the nest, each once, in their order."""
    origins: dict[Origin, None] = {}
    for piece in nest.pieces:
        origins.update(dict.fromkeys(program.origins.get(piece.writes[0].buffer, ())))
    return tuple(origins)
