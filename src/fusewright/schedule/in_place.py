"""Which new values of inputs are computed in the inputs' own memory, instead of being copied there
after the call.

    mutation buf5 of arg0             buf5 takes over arg0's memory: no allocation, no copy
    group … [i0<65536]        ->
      reads arg0[i0], writes buf5[i0]

An input must keep its old value until its last reader has run, and until nothing can raise any
more: a call that raises is run again, or has changed nothing.
"""

from __future__ import annotations

from fusewright.ir.group import Group, Schedule, action_roots
from fusewright.ir.program import Buffer, CopyBack, RowStatement
from fusewright.ir.raising import value_may_raise
from fusewright.ir.value import postorder
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import output_buffers
from fusewright.schedule.lifetimes import step_reads


def written_in_place(schedule: Schedule) -> dict[str, str]:
    """By buffer that is a mutation's new value: the input whose memory it is written to."""
    program = schedule.program
    wanted = dict(program.mutations)
    analysis = Analysis(program)
    buffers = program.buffers()
    read_later = {analysis.memory(name) for name in output_buffers(program)}
    found: dict[str, str] = {}
    for step in reversed(schedule.steps):
        if may_raise(step):
            break
        if isinstance(step, Group):
            for written in step.writes:
                target = wanted.get(written.name)
                if (
                    target is not None
                    and (written.name, target) in step.reuses
                    and target not in read_later
                    and _is_same_place(written, buffers[target])
                ):
                    found[written.name] = target
        read_later |= {analysis.memory(name) for name in step_reads(step)}
    return found


def may_raise(step: Group | RowStatement) -> bool:
    """Whether a step may fail at run time: any library call, a checked index, a division by 0."""
    match step:
        case Group():
            roots = [root for s in step.stages for root in action_roots(*s.actions)]
            return any(value_may_raise(value) for value in postorder(tuple(roots)))
        case _:
            return not isinstance(step, CopyBack)


def _is_same_place(written: Buffer, target: Buffer) -> bool:
    """Whether two layouts put each element in the same place, and no two in one."""
    size, stride = written.layout.size, written.layout.stride
    spread = all(step != 0 or extent == 1 for extent, step in zip(size, stride, strict=True))
    return written.layout == target.layout and spread
