"""The legality of steps between passes. Invariants, each checked here:

1.  A piece writes what one statement of the program defines, or a part of it: pieces of one
    statement stand in one nest, and write different elements at each of its points. The pieces of a
    nest stand in the order of their statements.
2.  The loops around a piece have extents and different names. All that a nest touches is on one
    device.
3.  What is loaded is an input, a constant, or made by a step that is left.
4.  A nest loads what it writes itself in a later piece, at the element where it was written: so
    that it may become a local.
5.  No step comes after one piece of a nest and before another: there is an order.
6.  The schedule that the steps would become is legal: `ir.verify` checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fusewright.errors import MalformedProgram
from fusewright.ir.program import ComputedBuffer, Program
from fusewright.ir.verify import (
    different_loops,
    require,
    verify_schedule,
    why_not_on_one_device,
)
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import statement_effects
from fusewright.schedule.nest import Nest, Step
from fusewright.schedule.schedule import finished, run_step_passes
from fusewright.schedule.text import step_rows


def verify_steps(program: Program, steps: Sequence[Step | None], analysis: Analysis) -> None:
    """Check every invariant of steps that stand where their first statement does.

    Raises: MalformedProgram.
    """
    defined = {buffer.name for buffer in (*program.inputs, *program.constants)}
    alive = [step for step in steps if step is not None]
    for step in alive:
        names = step.written if isinstance(step, Nest) else [b.name for b in step.outputs]
        twice = next((name for name in names if name in defined), None)
        require(None if twice is None else f"{twice} is made twice", partial(step_rows, step))
        defined.update(names)
    for step in alive:
        reason = _nest(step, program) if isinstance(step, Nest) else None
        require(reason or _missing(step, defined), partial(step_rows, step))
    graph = run_step_passes(program, list(steps), analysis, passes=())
    try:
        schedule = finished(program, graph)
    except ValueError as error:
        raise MalformedProgram(str(error)) from error
    verify_schedule(schedule)


def _missing(step: Step, defined: set[str]) -> str | None:
    """Invariant 3."""
    if isinstance(step, Nest):
        read = [*step.loaded, *(piece.base for piece in step.pieces if piece.base)]
    else:
        effects = statement_effects(step)
        read = [*effects.reads, *effects.overwrites]
    missing = next((name for name in read if name not in defined), None)
    return None if missing is None else f"no step is left that makes {missing}"


def _nest(nest: Nest, program: Program) -> str | None:
    """Invariants 1, 2 and 4."""
    positions = [piece.position for piece in nest.pieces]
    if positions != sorted(positions):
        return "its pieces do not stand in the order of the program"
    for piece in nest.pieces:
        statement = program.statements[piece.position]
        written = [write.buffer for write in piece.writes]
        if not isinstance(statement, ComputedBuffer):
            return f"no loops of the program define {written[0]}"
        if written != [buffer.name for buffer in statement.outputs]:
            return f"a statement defines {', '.join(b.name for b in statement.outputs)} together"
        wrong = different_loops((*nest.outer, *piece.inner))
        if wrong is not None:
            return wrong
    buffers = nest.analysis.buffers
    apart = why_not_on_one_device(
        [buffers[name] for name in nest.written], [buffers[name] for name in nest.loaded]
    )
    return apart or _own_writes(nest) or _own_loads(nest)


def _own_writes(nest: Nest) -> str | None:
    """That no element is written twice at a point, as far as indices tell."""
    for name, places in nest.written.items():
        indices = [write.index for _, write in places]
        if len(set(indices)) != len(indices):
            return f"{name} is written twice at {indices[0]}"
    return None


def _own_loads(nest: Nest) -> str | None:
    """Invariant 4."""
    for name, places in nest.written.items():
        writers = {write.index: writer for writer, write in places}
        for reader, load in nest.loaded.get(name, ()):
            writer = writers.get(load.index)
            if writer is None:
                written = ", ".join(map(str, writers))
                return f"{name} is written at {written} and read at {load.index}"
            if reader.position <= writer.position:
                return f"{name} is read before it is written"
    return None
