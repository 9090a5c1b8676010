"""Bytes that each group moves between memory and the processor, counted the way one does by hand.

Each buffer counts once a kernel: the elements that its accesses reach, at most the elements it spans. What stays in
locals, and what a cache serves a second time, moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fusewright.ir.group import Accumulate, Group, Store
from fusewright.ir.index import Index, integer
from fusewright.ir.program import Buffer
from fusewright.ir.value import Load, postorder


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one launch reads and writes."""

    read: int
    written: int

    @property
    def total(self) -> int:
        return self.read + self.written


def group_traffic(group: Group, hints: Mapping[str, int]) -> Traffic:
    """Count one launch of `group`, symbolic sizes taken at their hints."""
    reads: dict[str, set[Index]] = {}
    writes: dict[str, set[Index]] = {}
    for buffer, index, is_write in _accesses(group):
        (writes if is_write else reads).setdefault(buffer, set()).add(index)
    read = sum(_bytes(b, reads.get(b.name, set()), hints) for b in group.reads)
    written = sum(_bytes(b, writes.get(b.name, set()), hints) for b in group.writes)
    return Traffic(read, written)


def _accesses(group: Group) -> Iterator[tuple[str, Index, bool]]:
    for stage in group.stages:
        for action in stage.actions:
            if isinstance(action, Store | Accumulate):
                yield action.buffer, action.index, True
            for value in postorder((action.value,)):
                if isinstance(value, Load):
                    yield value.buffer, value.index, False


def _bytes(buffer: Buffer, indices: set[Index], hints: Mapping[str, int]) -> int:
    layout = buffer.layout
    span = 1
    for size in layout.size:
        span *= size.evaluate(hints)
    reached = sum(_reached(index, hints, span) for index in indices)
    return min(span, reached) * layout.dtype.bytes


def _reached(index: Index, hints: Mapping[str, int], span: int) -> int:
    """How many elements an index expression visits: the product of the extents of the loops it mentions."""
    total = integer(1)
    for symbol in index.free():
        if symbol.extent is not None:
            total = total * symbol.extent
        elif symbol.name not in hints:
            return span  # A loaded index may reach anything.
    return total.evaluate(hints)
