"""Transposed reads: square tiles turned in registers, so that memory is touched a run at a time.

A group that stores along one loop and loads along another (`y[768*i0 + i1] = x[768*i1 + i0]`) would
gather one element from each of sixteen cache lines. Instead a tile of lanes x lanes elements is
loaded by rows, turned by shuffles, kept in the function's frame, and read by columns. So that few
pages are written to at a time, and each of them from its beginning to its end, tiles go along the
lanes in strips:

```
for strips of i0                  units of work
  for i1 by 16                    lanes
    for i0 by 16                  tile
      transpose x[768*i1 + i0]    16 loads, 64 shuffles
      for i0 in the tile          stages, reading rows of the turned tile
```
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.group import Group, Store
from fusewright.ir.index import LoopSymbol
from fusewright.ir.value import Load, Masked, postorder
from fusewright.kernels import analysis
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.mathematics.registry import GENERATORS, Definition

STRIP = 128
"""Turns of a loop in a strip of tiles: a few of the widest vectors, so that what is asked for ahead
is there until the strip's next tiles.
"""


def strips(tile: LoopSymbol) -> LoopSymbol:
    """The loop over the strips that a loop is taken in."""
    return LoopSymbol("strip", (tile.extent + (STRIP - 1)) // STRIP)


def transposed_loads(group: Group, lane: LoopSymbol, tile: LoopSymbol) -> tuple[Load, ...]:
    """Loads that step along `tile` from element to element, and along `lane` in larger steps."""
    loads: dict[int, Load] = {}
    masked = _under_masks(group)
    for stage in group.stages:
        for node in analysis.stage_values(stage):
            if isinstance(node, Load) and not node.indirect and id(node) not in masked:
                step = node.index.stride(lane)
                if step is not None and step != 0 and step != 1 and node.index.stride(tile) == 1:
                    loads[id(node)] = node
    return tuple(loads.values())


def _under_masks(group: Group) -> set[int]:
    """Identities of the values that stand below a mask anywhere."""
    ids: set[int] = set()
    for stage in group.stages:
        for node in analysis.stage_values(stage):
            if isinstance(node, Masked):
                ids |= {id(inner) for inner in postorder((node.value,))}
    return ids


def choose_tile(group: Group, lane: LoopSymbol) -> LoopSymbol | None:
    """The loop to tile against the lanes: the one along which the most transposed loads run."""
    stages = group.stages
    if any(stage.inner for stage in stages) or group.locals:
        return None
    for action in (action for stage in stages for action in stage.actions):
        if not isinstance(action, Store) or action.index.stride(lane) != 1:
            return None
    counts = {
        symbol: len(transposed_loads(group, lane, symbol))
        for symbol in group.outer
        if symbol is not lane and analysis.extent_hint(symbol) >= 8
    }
    best = max(counts, key=lambda symbol: counts[symbol], default=None)
    return best if best is not None and counts[best] else None


def call_transpose(
    b: IRBuilder, source: Register, step: Register, tile: Register, kind: VectorType
) -> None:
    """Turn the lanes x lanes elements whose rows begin at `source`, `step` elements apart, into
    `tile`."""
    name = f"transpose.{kind.suffix}"
    b.required.setdefault(name)
    b.line(f"call void @{name}(ptr {source.text}, i64 {step.text}, ptr {tile.text})")


def _transpose(kind: VectorType) -> Definition:
    """The function that turns a tile: rows are exchanged in halves, quarters, … down to single
    lanes."""
    b = IRBuilder()
    lanes = kind.lanes
    align = max(1, kind.bits // 8)
    rows: list[Register] = []
    for row in range(lanes):
        offset = b.emit(VectorType("i64"), f"mul i64 %step, {row}")
        place = b.emit(
            VectorType("ptr"), f"getelementptr {kind.element}, ptr %source, i64 {offset.text}"
        )
        rows.append(b.emit(kind, f"load {kind}, ptr {place.text}, align {align}"))
    half = lanes // 2
    while half:
        rows = _exchange(b, rows, half)
        half //= 2
    for number, turned in enumerate(rows):
        place = b.emit(VectorType("ptr"), f"getelementptr {kind}, ptr %tile, i64 {number}")
        b.line(f"store {kind} {turned.text}, ptr {place.text}")
    name = f"@transpose.{kind.suffix}"
    head = f"define internal void {name}(ptr %source, i64 %step, ptr %tile) nounwind {{"
    return Definition("\n".join((head, "entry:", *b.lines, "  ret void", "}")), ())


def _exchange(b: IRBuilder, rows: Sequence[Register], half: int) -> list[Register]:
    """Swap, between each pair of rows `half` apart, the blocks of `half` lanes off the diagonal."""
    lanes = len(rows)
    result = list(rows)
    low = [lane if not lane & half else lanes + lane - half for lane in range(lanes)]
    high = [lane + half if not lane & half else lanes + lane for lane in range(lanes)]
    for row in range(lanes):
        if not row & half:
            result[row] = b.shuffle(rows[row], rows[row | half], low)
            result[row | half] = b.shuffle(rows[row], rows[row | half], high)
    return result


GENERATORS["transpose"] = _transpose
