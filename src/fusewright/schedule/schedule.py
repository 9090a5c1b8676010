"""Scheduling as one straight function: from a Program of single bodies to ordered, fused groups."""

from __future__ import annotations

from dataclasses import replace

from fusewright.context import CompileContext
from fusewright.ir.group import Group, Schedule
from fusewright.ir.origin import Origin
from fusewright.ir.program import ComputedBuffer, CopyBack, ExternKernel, Program
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.dead_code import remove_dead_code
from fusewright.schedule.dependencies import Dependencies, effects, output_buffers
from fusewright.schedule.fusion import Graph, fuse
from fusewright.schedule.lifetimes import possible_reuses
from fusewright.schedule.names import group_name
from fusewright.schedule.nest import Nest, nest_of
from fusewright.schedule.order import order_steps
from fusewright.schedule.simplify import simplify
from fusewright.schedule.stages import build_group


def schedule(program: Program, context: CompileContext) -> Schedule:
    """Fuse and order the statements of `program`; its values are made in `program.expressions`."""
    analysis = Analysis(program)
    program = remove_dead_code(program, analysis)
    graph = build_graph(program, analysis)
    fuse(graph)
    return Schedule(program=program, steps=_finish(program, graph))


def build_graph(program: Program, analysis: Analysis) -> Graph:
    """One step a statement; each body is a nest with simplified loops."""
    effect = [effects(statement, analysis) for statement in program.statements]
    nests: list[Nest | None] = []
    for position, statement in enumerate(program.statements):
        if isinstance(statement, ComputedBuffer):
            nests.append(simplify(nest_of(statement, position, analysis)))
        else:
            nests.append(None)
    readers: dict[str, set[int]] = {}
    writer: dict[str, int] = {}
    for step, one in enumerate(effect):
        for name in (*one.reads, *one.overwrites):
            readers.setdefault(name, set()).add(step)
        for name in one.writes:
            writer[name] = step
    return Graph(
        nests=nests,
        dependencies=Dependencies(effect),
        readers=readers,
        kept=output_buffers(program),
        analysis=analysis,
        writer=writer,
    )


def _finish(program: Program, graph: Graph) -> tuple[Group | ExternKernel | CopyBack, ...]:
    """Groups of the fused nests, and the other steps, in order."""
    steps: dict[int, Group | ExternKernel | CopyBack] = {}
    for number, statement in enumerate(program.statements):
        nest = graph.nests[number]
        if nest is not None:
            steps[number] = _group(program, graph, number, simplify(nest))
        elif not isinstance(statement, ComputedBuffer):
            steps[number] = statement
    order = order_steps(list(steps), graph.dependencies, {}, {}, graph.kept, graph.analysis.bytes)
    return tuple(steps[number] for number in order)


def _group(program: Program, graph: Graph, number: int, nest: Nest) -> Group:
    def leaves_memory(name: str) -> bool:
        return name not in graph.kept and graph.readers.get(name, set()) <= {number}

    origins = _origins(program, nest)
    group = build_group(nest, group_name(nest, origins), leaves_memory, origins)
    bases = tuple((p.writes[0].buffer, p.base) for p in nest.pieces if p.kind == "scatter")
    return replace(group, reuses=(*bases, *possible_reuses(group, graph.analysis)))


def _origins(program: Program, nest: Nest) -> tuple[Origin, ...]:
    found: dict[Origin, None] = {}
    for piece in nest.pieces:
        found.update(dict.fromkeys(program.origins.get(piece.writes[0].buffer, ())))
    return tuple(found)
