"""Transposed accesses: squares turned in registers, so that memory is touched a run at a time.

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

A stage's own loop goes in such squares, too, where it runs along what its lanes run across: there
values are also stored through a square, which is turned and written when it is full.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.group import Group, Reduce, Stage, Store
from fusewright.ir.index import Index, LoopSymbol
from fusewright.ir.value import Load, Masked, postorder
from fusewright.kernels import analysis
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.mathematics.registry import GENERATORS, Definition
from fusewright.records import record

STRIP = 128
"""Turns of a loop in a strip of tiles: a few of the widest vectors, so that what is asked for ahead
is there until the strip's next tiles.
"""


def strips(tile: LoopSymbol) -> LoopSymbol:
    """The loop over the strips that a loop is taken in."""
    return LoopSymbol("strip", (tile.extent + (STRIP - 1)) // STRIP)


@record
class Squares:
    """A loop that goes in squares against the lanes, and what squares turn: accesses that step
    along the loop from element to element, and along the lanes in larger steps.
    """

    symbol: LoopSymbol
    loads: tuple[Load, ...]
    stores: tuple[Store, ...] = ()

    @classmethod
    def along(cls, stages: Sequence[Stage], lane: LoopSymbol, symbol: LoopSymbol) -> Squares:
        """The squares of `symbol` against `lane` in these stages."""
        masked = _under_masks(stages)
        loads: dict[int, Load] = {}
        stores: list[Store] = []
        for stage in stages:
            for node in analysis.stage_values(stage):
                if not isinstance(node, Load) or node.indirect or id(node) in masked:
                    continue
                if _is_transposed(node.index, lane, symbol):
                    loads[id(node)] = node
            for action in stage.actions:
                if isinstance(action, Store) and _is_transposed(action.index, lane, symbol):
                    stores.append(action)
        return cls(symbol, tuple(loads.values()), tuple(stores))

    @property
    def count(self) -> int:
        """How many accesses are turned."""
        return len(self.loads) + len(self.stores)


def _is_transposed(index: Index, lane: LoopSymbol, symbol: LoopSymbol) -> bool:
    step = index.stride(lane)
    return step is not None and step != 0 and step != 1 and index.stride(symbol) == 1


def _under_masks(stages: Sequence[Stage]) -> set[int]:
    """Identities of the values that stand below a mask anywhere."""
    ids: set[int] = set()
    for stage in stages:
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
        symbol: Squares.along(stages, lane, symbol).count
        for symbol in group.outer
        if symbol is not lane and analysis.extent_hint(symbol) >= 8
    }
    best = max(counts, key=lambda symbol: counts[symbol], default=None)
    return best if best is not None and counts[best] else None


def squares_of(stage: Stage, lane: LoopSymbol, side: int) -> Squares | None:
    """The squares that a stage's own loops go in against `lane`: of the loop along which most
    accesses are turned. None: no access is, or what is stored is read again.
    """
    if analysis.stored_in(stage) & analysis.loaded_in(stage):
        return None
    if not all(isinstance(action, Store | Reduce) for action in stage.actions):
        return None
    found = [
        Squares.along((stage,), lane, symbol)
        for symbol in stage.inner
        if not symbol.extent.is_constant or int(symbol.extent) >= side
    ]
    best = max(found, key=lambda squares: squares.count, default=None)
    return best if best is not None and best.count else None


def call_transpose(
    b: IRBuilder,
    source: Register,
    source_step: Register,
    target: Register,
    target_step: Register,
    kind: VectorType,
) -> None:
    """Turn the lanes x lanes elements whose rows begin at `source`, `source_step` elements apart,
    into rows from `target` on, `target_step` elements apart.
    """
    name = f"transpose.{kind.suffix}"
    b.required.setdefault(name)
    b.line(
        f"call void @{name}(ptr {source.text}, i64 {source_step.text}, "
        f"ptr {target.text}, i64 {target_step.text})"
    )


def _transpose(kind: VectorType) -> Definition:
    """The function that turns a tile: rows are exchanged in halves, quarters, … down to single
    lanes."""
    b = IRBuilder()
    lanes = kind.lanes
    align = max(1, kind.bits // 8)

    def place(side: str, row: int) -> Register:
        offset = b.emit(VectorType("i64"), f"mul i64 %{side}_step, {row}")
        text = f"getelementptr {kind.element}, ptr %{side}, i64 {offset.text}"
        return b.emit(VectorType("ptr"), text)

    rows: list[Register] = []
    for row in range(lanes):
        pointer = place("source", row)
        rows.append(b.emit(kind, f"load {kind}, ptr {pointer.text}, align {align}"))
    half = lanes // 2
    while half:
        rows = _exchange(b, rows, half)
        half //= 2
    for number, turned in enumerate(rows):
        pointer = place("target", number)
        b.line(f"store {kind} {turned.text}, ptr {pointer.text}, align {align}")
    name = f"@transpose.{kind.suffix}"
    arguments = "ptr %source, i64 %source_step, ptr %target, i64 %target_step"
    head = f"define internal void {name}({arguments}) nounwind {{"
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
