"""New values of inputs computed in the inputs' own memory, instead of being copied there after the
call.

    mutation buf5 of arg0             buf5 takes over arg0's memory: no allocation, no copy
    group … [i0<65536]        ->
      reads arg0[i0], writes buf5[i0]

An input must keep its old value until its last reader has run, and until nothing can raise any
more: a call that raises is run again, or has changed nothing. Kernels that the program wrote may
come later: it is only when they are first compiled that they raise, and that is marked then.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.group import Group, StepWork, action_roots
from fusewright.ir.program import Buffer, CallUserKernel, CopyBack, Program, UnfilledMemory
from fusewright.ir.raising import value_may_raise
from fusewright.ir.value import postorder
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import buffers_used, output_buffers


def written_in_place(program: Program, works: Sequence[StepWork]) -> dict[str, str]:
    """The input whose memory each buffer that is a mutation's new value is written to."""
    targets = dict(program.mutations)
    analysis = Analysis(program)
    buffers = program.buffers()
    read_later = {analysis.memory(name) for name in output_buffers(program)}
    in_place: dict[str, str] = {}
    for work in reversed(works):
        if may_raise(work) and not isinstance(work, CallUserKernel):
            break
        if isinstance(work, Group):
            for written in work.writes:
                target = targets.get(written.name)
                if (
                    target is not None
                    and (written.name, target) in work.reuses
                    and target not in read_later
                    and _is_same_place(written, buffers[target])
                ):
                    in_place[written.name] = target
        read_later |= {analysis.memory(name) for name in buffers_used(work)}
    return in_place


def may_raise(work: StepWork) -> bool:
    """Whether a step may fail at run time: any library call, a checked index, a division by 0."""
    match work:
        case Group():
            roots = [root for stage in work.stages for root in action_roots(*stage.actions)]
            return any(value_may_raise(value) for value in postorder(tuple(roots)))
        case _:
            return not isinstance(work, CopyBack | UnfilledMemory)


def _is_same_place(written: Buffer, target: Buffer) -> bool:
    """Whether two layouts put each element in the same place, and no two in one."""
    size, stride = written.layout.size, written.layout.stride
    spread = all(step != 0 or extent == 1 for extent, step in zip(size, stride, strict=True))
    return written.layout == target.layout and spread
