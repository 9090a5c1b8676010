"""How long buffers live: their last use, and memory that can be taken over."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.group import Group, Reduce, Schedule, Stage, Store, action_roots
from fusewright.ir.index import Index
from fusewright.ir.program import Buffer, Layout, RowStatement
from fusewright.ir.value import Masked
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import output_buffers, statement_effects

Step = Group | RowStatement


def step_reads(step: Step) -> tuple[str, ...]:
    """Buffers whose memory a step reads or changes, those it makes left out."""
    if isinstance(step, Group):
        made = {buffer.name for buffer in step.writes}
        return tuple(buffer.name for buffer in step.reads if buffer.name not in made)
    effect = statement_effects(step)
    return tuple(dict.fromkeys((*effect.reads, *effect.overwrites)))


def step_writes(step: Step) -> tuple[Buffer, ...]:
    """Buffers that a step makes."""
    return step.writes if isinstance(step, Group) else step.outputs


def last_uses(schedule: Schedule) -> tuple[tuple[str, ...], ...]:
    """The buffers that die with each step: those that no later step reads and that are no output,
    in order of use.

    Graph inputs and constants are among them; a buffer that nobody reads dies with the step that
    makes it; one whose memory another is an alias of lives as long as the alias.
    """
    analysis = Analysis(schedule.program)
    outputs = output_buffers(schedule.program)
    seen = {*outputs, *map(analysis.memory, outputs)}
    dying: list[tuple[str, ...]] = []
    for step in reversed(schedule.steps):
        made = (buffer.name for buffer in step_writes(step))
        named = dict.fromkeys((*step_reads(step), *made))
        used = dict.fromkeys((*named, *map(analysis.memory, named)))
        dying.append(tuple(name for name in used if name not in seen))
        seen.update(used)
    return tuple(reversed(dying))


# Taking over memory -------------------------------------------------------------------------------


def possible_reuses(group: Group, analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """Pairs (written, read) of equal span in which every element is read only by the point that
    then writes it.

    Each loaded index must be the stored one, and no load may come in a later stage or action than
    the store.
    """
    stores = _single_stores(group.stages)
    loads = _loads(group.stages, analysis)
    made = {buffer.name for buffer in group.writes}
    pairs: list[tuple[str, str]] = []
    for written in group.writes:
        if written.name not in stores or written.name in loads:
            continue
        index, place = stores[written.name]
        for read in group.reads:
            if read.name in made or not _same_memory(read.layout, written.layout):
                continue
            if all(at == index and when <= place for at, when in loads.get(read.name, ())):
                pairs.append((written.name, read.name))
    return tuple(pairs)


def _same_memory(one: Layout, other: Layout) -> bool:
    """Whether two layouts take the same bytes of memory."""
    alike = one.dtype == other.dtype and one.device == other.device
    return alike and (one == other or one.span == other.span)


Moment = tuple[int, int]
"""Stage and action."""


def _single_stores(stages: Sequence[Stage]) -> dict[str, tuple[Index, Moment]]:
    found: dict[str, tuple[Index, Moment]] = {}
    for k, stage in enumerate(stages):
        for j, action in enumerate(stage.actions):
            if isinstance(action, Store):
                found[action.buffer] = (action.index, (k, j))
    return found


def _loads(stages: Sequence[Stage], analysis: Analysis) -> dict[str, list[tuple[Index, Moment]]]:
    """By buffer, what is loaded of it and when."""
    found: dict[str, list[tuple[Index, Moment]]] = {}
    for k, stage in enumerate(stages):
        roots = [(j, root) for j, a in enumerate(stage.actions) for root in action_roots(a)]
        once = _loaded_once(stage, analysis)
        seen: set[int] = set()
        for j, root in roots:
            for load in analysis.loads(root):
                if id(load) not in seen:
                    found.setdefault(load.buffer, []).append((load.index, (k, j)))
                if id(load) in once:
                    seen.add(id(load))
    return found


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
