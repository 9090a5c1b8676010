"""Lifetimes of buffers: the memory that each step takes over, and the buffers it uses last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewright.ir.group import (
    Group,
    Reduce,
    ScanStore,
    ScheduledStep,
    Stage,
    StepWork,
    Store,
    action_roots,
    kept_buffers,
)
from fusewright.ir.index import Index
from fusewright.ir.program import (
    Buffer,
    CallOperator,
    CallUserKernel,
    Layout,
    Program,
    UnfilledMemory,
)
from fusewright.ir.value import Masked
from fusewright.records import replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import buffers_used, output_buffers
from fusewright.schedule.in_place import written_in_place


def with_lifetimes(program: Program, works: Sequence[StepWork]) -> tuple[ScheduledStep, ...]:
    """The steps of a schedule of `program`: what each does, whose memory it takes over, and the
    buffers that it uses last.

    A written buffer is given the memory of the input whose new value it is, or of the first buffer
    that its group offers, that dies here, and that nobody else holds.
    """
    in_place = written_in_place(program, works)
    owned = _owned_buffers(program, works)
    constants = {buffer.name for buffer in program.constants}
    steps: list[ScheduledStep] = []
    has_written = False
    for work, used in zip(works, last_uses(program, works), strict=True):
        dying = tuple(name for name in used if name not in constants)
        pairs = _taken_over(work, owned.intersection(dying), in_place)
        reused = {read for _, read in pairs}
        has_written = has_written or not in_place.keys().isdisjoint(dict(pairs))
        if has_written and isinstance(work, CallUserKernel):
            step_work: StepWork = replace(work, is_behind_writes=True)
        else:
            step_work = work
        dying = tuple(name for name in dying if name not in reused)
        steps.append(ScheduledStep(work=step_work, takes_over=pairs, last_uses=dying))
    return tuple(steps)


def _taken_over(
    work: StepWork, free: set[str], in_place: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Pairs (written, read): buffers that a group writes to memory of others. `free` names the
    buffers whose memory can be had.
    """
    if not isinstance(work, Group):
        return ()
    free = free - {buffer.name for buffer in work.writes}
    pairs: list[tuple[str, str]] = []
    for buffer in work.writes:
        offers = (read for written, read in work.reuses if written == buffer.name)
        source = in_place.get(buffer.name) or next((read for read in offers if read in free), None)
        if source is not None:
            free.discard(source)
            pairs.append((buffer.name, source))
    return tuple(pairs)


def _owned_buffers(program: Program, works: Sequence[StepWork]) -> set[str]:
    """Buffers whose memory is allocated for them, by the compiled program or by a library call for
    it alone, and is not held by others: only these may be overwritten by another.
    """
    owned = {buffer.name for work in works if isinstance(work, Group) for buffer in work.writes}
    aliased: set[str] = set()
    for work in works:
        if isinstance(work, UnfilledMemory):
            owned.update(buffer.name for buffer in work.outputs)
        if isinstance(work, CallOperator):
            if work.out_operator or work.gives_new_memory:
                owned.update(buffer.name for buffer in work.outputs)
            aliased.update(base for _, base in work.aliases)
    external = {buffer.name for buffer in (*program.inputs, *program.constants)}
    return owned - external - aliased - kept_buffers(works)


# Last uses ----------------------------------------------------------------------------------------


def _buffers_made(work: StepWork) -> tuple[Buffer, ...]:
    return work.writes if isinstance(work, Group) else work.outputs


def last_uses(program: Program, works: Sequence[StepWork]) -> tuple[tuple[str, ...], ...]:
    """The buffers that die with each step: those that no later step reads and that are no output,
    in order of use.

    Graph inputs and constants are among them; a buffer that nobody reads dies with the step that
    makes it; one whose memory another is an alias of lives as long as the alias.
    """
    analysis = Analysis(program)
    outputs = output_buffers(program)
    later = {*outputs, *map(analysis.memory, outputs)}
    dying: list[tuple[str, ...]] = []
    for work in reversed(works):
        stored = (buffer.name for buffer in _buffers_made(work))
        named = dict.fromkeys((*buffers_used(work), *stored))
        used = dict.fromkeys((*named, *map(analysis.memory, named)))
        dying.append(tuple(name for name in used if name not in later))
        later.update(used)
    return tuple(reversed(dying))


# Taking over memory -------------------------------------------------------------------------------


def possible_reuses(group: Group, analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """Pairs (written, read) of equal span in which every element is read only by the point that
    then writes it.

    Each loaded index must be a stored one, and no load may come in a later stage or action than the
    store there.
    """
    stores = _stores(group.stages)
    loads_first = analysis.limits_of(group.device).loads_first
    loads = _loads(group.stages, analysis, loads_first=loads_first)
    written_names = {buffer.name for buffer in group.writes}
    pairs: list[tuple[str, str]] = []
    for written in group.writes:
        if written.name not in stores or written.name in loads:
            continue
        own = stores[written.name]
        for read in group.reads:
            if read.name in written_names or not _same_memory(read.layout, written.layout):
                continue
            if all(at in own and when <= own[at] for at, when in loads.get(read.name, ())):
                pairs.append((written.name, read.name))
    return tuple(pairs)


def _same_memory(layout: Layout, other: Layout) -> bool:
    """Whether two layouts take the same bytes of memory."""
    alike = layout.dtype == other.dtype and layout.device == other.device
    return alike and (layout == other or layout.span == other.span)


Moment = tuple[int, int]
"""Stage and action."""


def _stores(stages: Sequence[Stage]) -> dict[str, dict[Index, Moment]]:
    """By buffer, the elements that a point stores, with their times."""
    stores: dict[str, dict[Index, Moment]] = {}
    for k, stage in enumerate(stages):
        for j, action in enumerate(stage.actions):
            if isinstance(action, Store | ScanStore):
                stores.setdefault(action.buffer, {})[action.index] = (k, j)
    return stores


def _loads(
    stages: Sequence[Stage], analysis: Analysis, *, loads_first: bool
) -> dict[str, list[tuple[Index, Moment]]]:
    """The loads of each buffer and their times: with the first action of its stage, where kernels
    begin with what they load.
    """
    loads: dict[str, list[tuple[Index, Moment]]] = {}
    for k, stage in enumerate(stages):
        roots = [(j, root) for j, a in enumerate(stage.actions) for root in action_roots(a)]
        once = _loaded_once(stage, analysis)
        ids: set[int] = set()
        for j, root in roots:
            for load in analysis.loads(root):
                if id(load) not in ids:
                    when = (k, 0 if loads_first else j)
                    loads.setdefault(load.buffer, []).append((load.index, when))
                if id(load) in once:
                    ids.add(id(load))
    return loads


def _loaded_once(stage: Stage, analysis: Analysis) -> frozenset[int]:
    """The loads, by identity, that actions of a stage share: done for the first of them. Not where
    a stage gathers, or loads what it stores; nor below masks, which may differ.
    """
    if any(isinstance(action, Reduce) for action in stage.actions):
        return frozenset()
    roots = action_roots(*stage.actions)
    loads = [load for root in roots for load in analysis.loads(root)]
    stored = {action.buffer for action in stage.actions if not isinstance(action, Reduce)}
    if any(load.buffer in stored for load in loads):
        return frozenset()
    masked = [
        node.value for root in roots for node in analysis.nodes(root) if isinstance(node, Masked)
    ]
    below = {id(load) for value in masked for load in analysis.loads(value)}
    return frozenset(id(load) for load in loads) - below
