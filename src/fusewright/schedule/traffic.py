"""Bytes that each group moves between memory and the processor, counted the way one does by hand.

Each buffer counts once a kernel: the elements that its accesses reach, at most the elements it
spans. What stays in locals, and what a cache serves a second time, moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusewright.ir.group import Group, Reduce
from fusewright.ir.index import Index, LoopSymbol, integer
from fusewright.ir.program import Buffer
from fusewright.ir.value import Load, Value, postorder
from fusewright.records import record


@record
class Traffic:
    """Bytes that one launch reads and writes."""

    read: int
    written: int

    @property
    def total(self) -> int:
        return self.read + self.written


def group_traffic(group: Group, hints: Mapping[str, int | float]) -> Traffic:
    """Count one launch of `group`, symbolic sizes taken at their hints."""
    reads: dict[str, dict[Index, Index]] = {}
    writes: dict[str, dict[Index, Index]] = {}
    for buffer, index, visited, is_write in _accesses(group):
        (writes if is_write else reads).setdefault(buffer, {})[index] = visited
    # What a point wrote itself it finds in the cache.
    fresh = {buffer.name for buffer in group.writes} - {new for new, _ in group.taken_over}
    loaded = (buffer for buffer in group.reads if buffer.name not in fresh)
    read = sum(_bytes(b, reads.get(b.name, {}), hints) for b in loaded)
    written = sum(_bytes(b, writes.get(b.name, {}), hints) for b in group.writes)
    return Traffic(read, written)


def _accesses(group: Group) -> Iterator[tuple[str, Index, Index, bool]]:
    """Each access: buffer, index, how many elements it visits at most, and whether it writes."""
    for stage in group.stages:
        for action in stage.actions:
            if not isinstance(action, Reduce):
                yield action.buffer, action.index, _visited(action.index, action.value), True
            for value in postorder((action.value,)):
                if isinstance(value, Load):
                    yield value.buffer, value.index, _visited(value.index, value), False


def _visited(index: Index, value: Value) -> Index:
    """The product of the extents of the loops that `index` depends on, also through indices that
    were loaded.
    """
    symbols = set(index.free())
    if isinstance(value, Load):
        for inner in postorder(value.indirect):
            if isinstance(inner, Load):
                symbols |= inner.index.free()
    total = integer(1)
    for symbol in symbols:
        if isinstance(symbol, LoopSymbol):
            total = total * symbol.extent
    return total


def _bytes(buffer: Buffer, visits: Mapping[Index, Index], hints: Mapping[str, int | float]) -> int:
    layout = buffer.layout
    span = 1
    for size in layout.size:
        span *= size.evaluate(hints)
    reached = sum(visited.evaluate(hints) for visited in visits.values())
    return min(span, reached) * layout.dtype.bytes
