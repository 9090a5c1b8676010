"""New values of inputs computed in the inputs' own memory, instead of being copied there after the
call.

    mutation buf5 of arg0             buf5 takes over arg0's memory: no allocation, no copy
    group … [i0<65536]        ->
      reads arg0[i0], writes buf5[i0]

An input must keep its old value until its last reader has run, and until nothing can raise any
more: a call that raises is run again, or has changed nothing. Kernels that the program wrote may
come later: it is only when they are first compiled that they raise, and that is marked then.

Rows stored into an input that nobody else reads, as the keys and values of tokens are into a cache
of fixed size, need not wait: whoever runs the call again stores to the same elements, and what
eager raises behind its store, it raises with the store done. Several stores into one input may
follow each other so, if nothing reads it between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from fusewright.ir.group import Accumulate, Group, StepWork, action_roots
from fusewright.ir.program import Buffer, CallUserKernel, CopyBack, Program, UnfilledMemory
from fusewright.ir.raising import early_checks, value_may_raise
from fusewright.ir.value import Load, Random, Value, postorder
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import buffers_used, output_buffers

CPU: Final = "cpu"


def written_in_place(program: Program, works: Sequence[StepWork]) -> dict[str, str]:
    """The input whose memory each buffer that is a mutation's new value is written to."""
    if not program.mutations:
        return {}
    targets = dict(program.mutations)
    analysis = Analysis(program)
    buffers = analysis.buffers
    positions = _positions(program)
    stores = _lone_stores(program, works)
    targets |= dict(stores.values())
    continued = {base: written for written, base in stores.values()}
    read_later = {analysis.memory(name) for name in output_buffers(program)}
    end = first_raising = len(program.statements)
    in_place: dict[str, str] = {}
    for work in reversed(works):
        store, _ = stores.get(id(work), ("", ""))
        is_early = bool(store) and positions[store] < first_raising
        if may_raise(work) and not isinstance(work, CallUserKernel):
            position = positions[store] if store else _first_position(work, positions)
            first_raising = min(first_raising, position)
        for name, source in work.reuses if isinstance(work, Group) else ():
            if (
                targets.get(name) == source
                and (first_raising == end or (is_early and name == store))
                and source not in read_later
                and (name not in continued or continued[name] in in_place)
                and _is_same_place(buffers[name], buffers[source])
            ):
                in_place[name] = source
        read_later |= {analysis.memory(name) for name in buffers_used(work)}
    return in_place


def may_raise(work: StepWork) -> bool:
    """Whether a step may fail at run time: any library call, a checked index, a division by 0."""
    match work:
        case Group():
            return any(value_may_raise(value) for value in _values(work))
        case _:
            return not isinstance(work, CopyBack | UnfilledMemory)


def _values(group: Group) -> tuple[Value, ...]:
    roots = [root for stage in group.stages for root in action_roots(*stage.actions)]
    return tuple(postorder(tuple(roots)))


def _positions(program: Program) -> dict[str, int]:
    """The place among the program's statements of what makes each buffer."""
    return {
        buffer.name: position
        for position, statement in enumerate(program.statements)
        for buffer in statement.outputs
    }


def _first_position(work: StepWork, positions: Mapping[str, int]) -> int:
    """The place in the program, at least, of what may raise in a step: any for a group, which may
    compute what was computed far before it.
    """
    outputs = () if isinstance(work, Group) else work.outputs
    return min((positions[buffer.name] for buffer in outputs), default=-1)


def _lone_stores(program: Program, works: Sequence[StepWork]) -> dict[int, tuple[str, str]]:
    """By the identity of a group, a buffer and its base, of which the group stores a few elements,
    on the way from an input to its new value. Nobody else uses the base: its old elements decide
    nothing.
    """
    uses = Counter(name for work in works for name in buffers_used(work))
    known = frozenset(buffer.name for buffer in (*program.inputs, *program.constants))
    makers = {b.name: work for work in works if isinstance(work, Group) for b in work.writes}
    stores: dict[int, tuple[str, str]] = {}
    for new_value, target in program.mutations:
        name = new_value
        on_the_way: dict[int, tuple[str, str]] = {}
        while name != target and name in makers:
            work = makers[name]
            base = _base_of_lone_store(work, name, known)
            if not base or uses[base] > 1:
                break
            on_the_way[id(work)] = name, base
            name = base
        if name == target:
            stores |= on_the_way
    return stores


def _base_of_lone_store(group: Group, name: str, known: Collection[str]) -> str:
    """The buffer that the only scatter of a group, which makes `name`, stores into: so that it may
    be done again. Else empty.
    """
    actions = [action for stage in group.stages for action in stage.actions]
    match [action for action in actions if isinstance(action, Accumulate)]:
        case [Accumulate(buffer=buffer, mode="store") as scatter] if buffer == name:
            base = dict(group.taken_over).get(name, "")
        case _:
            return ""
    is_read = any(isinstance(value, Load) and value.buffer == base for value in _values(group))
    return base if not is_read and _is_repeatable(group, scatter, known) else ""


def _is_repeatable(group: Group, scatter: Accumulate, known: Collection[str]) -> bool:
    """Whether a scatter stores to the same elements in each run of a call, and to none where its
    group raises: at indices computed of integers that the call is given (`known`), which a kernel
    for the CPU checks before it stores. On a GPU a check that fails ends all.
    """
    raising = [value for value in _values(group) if value_may_raise(value)]
    if any(value not in scatter.indirect for value in raising):
        return False
    if raising and group.device == CPU and early_checks(group) is None:
        return False
    return not any(
        value.dtype.is_float
        or isinstance(value, Random)
        or (isinstance(value, Load) and value.buffer not in known)
        for value in postorder(scatter.indirect)
    )


def _is_same_place(written: Buffer, target: Buffer) -> bool:
    """Whether two layouts put each element in the same place, and no two in one."""
    size, stride = written.layout.size, written.layout.stride
    spread = all(step != 0 or extent == 1 for extent, step in zip(size, stride, strict=True))
    return written.layout == target.layout and spread
