"""What a group touches of memory along its rows, by which blocks and threads are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fusewright.ir.group import Group, Reduce, ScanStore, Stage
from fusewright.ir.index import Index
from fusewright.ir.value import Load, Random
from fusewright.kernels.analysis import Dependences, Traits, stage_values

HALF_BYTES: Final = 2
"""Bytes of an element of a half type."""


def row_loads(stage: Stage, group: Group) -> Iterator[tuple[str, Index]]:
    """Where a stage reads elements of memory that each row has its own of."""
    memory = {buffer.name for buffer in group.reads}
    for value in stage_values(stage):
        if isinstance(value, Load) and value.buffer in memory:
            free = value.index.free()
            if free.intersection(stage.inner) and free.intersection(group.outer):
                yield value.buffer, value.index


def loaded_rows(group: Group) -> set[tuple[str, Index]]:
    """All of these of a group."""
    return {load for stage in group.stages for load in row_loads(stage, group)}


def stored_rows(group: Group) -> set[str]:
    """The buffers in memory of which stages over rows store an element for each of theirs."""
    written = {buffer.name for buffer in group.writes}
    return {
        action.buffer
        for stage in group.stages
        if stage.inner
        for action in stage.actions
        if not isinstance(action, Reduce) and action.buffer in written
    }


def element_bytes(group: Group) -> int:
    """The bytes of the largest element of memory that is touched along rows, or at each point where
    there are none.
    """
    types = {buffer.name: buffer.layout.dtype for buffer in (*group.reads, *group.writes)}
    is_flat = not any(stage.inner for stage in group.stages)
    touched = {
        access.buffer
        for stage in group.stages
        for access in Traits.of(stage, Dependences()).accesses
        if access.index.free().intersection(group.outer if is_flat else stage.inner)
    }
    return max((types[buffer].bytes for buffer in touched if buffer in types), default=0)


def copies_rows(group: Group) -> bool:
    """Whether at most one row of memory is loaded for each, by elements of its own, and one is
    stored, of half types: neither are elements drawn, nor scanned into.
    """
    stages = group.stages
    if any(isinstance(action, ScanStore) for stage in stages for action in stage.actions):
        return False
    if any(isinstance(value, Random) for stage in stages for value in stage_values(stage)):
        return False
    loads = {
        (buffer, index)
        for stage in stages
        for buffer, index in row_loads(stage, group)
        if index.free().issuperset(stage.inner)
    }
    return len(loads) <= 1 and len(stored_rows(group)) == 1 and is_half(group)


def is_half(group: Group) -> bool:
    """Whether all that is touched along rows, or at each point, is of half types, or smaller."""
    return element_bytes(group) <= HALF_BYTES
