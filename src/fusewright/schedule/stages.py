"""From a nest to a Group: pieces are put into stages, and buffers that nobody else reads become
locals.

Before, where `m`, `e` and `s` are read by no other step:
```
nest [i0<32]
  max   m[i0] over [r0<128]:            x[128*i0 + r0]
  store e[128*i0 + r0] over [r0<128]:   exp(x[128*i0 + r0] - m[i0])
  sum   s[i0] over [r0<128]:            e[128*i0 + r0]
  store y[128*i0 + r0] over [r0<128]:   e[128*i0 + r0] / s[i0]
```
After:
```
group [i0<32]
  local m: f32   local e: f32[128]   local s: f32
  stage over [r0<128]   reduce m = max x[128*i0 + r0]
  stage over [r0<128]   t = exp(x[128*i0 + r0] - m);  store e[r0] = t;  reduce s = sum t
  stage over [r0<128]   store y[128*i0 + r0] = e[r0] / s
```
Within a stage a value is handed on as it is. A later stage computes it again where that is cheap,
else finds it in a local: a scalar, or a row over the inner loops. A reduction that nobody waits for
yet is put off to a stage that reads the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fusewright.ir.group import (
    Accumulate,
    Action,
    Gather,
    Group,
    Local,
    Reduce,
    ScanStore,
    Stage,
    Store,
    action_roots,
)
from fusewright.ir.index import Index, LoopSymbol, contiguous_strides, extent, integer
from fusewright.ir.origin import Origin
from fusewright.ir.program import Buffer
from fusewright.ir.value import Load, Value
from fusewright.records import field, record
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.nest import Nest, Piece, place_index

RECOMPUTED_COST = 4
"""A value of at most this cost is computed again in a later stage rather than kept in a row."""

RECOMPUTED_LOADS = 2
"""A value that loads more than this at each point of a row is kept in a row."""

ALL_ROWS_BYTES = 1 << 19
"""Nor is one with which the rows of a group would be longer than this: they lie on a thread's
stack."""

ZERO = integer(0)


@record(frozen=False)
class Placed:
    """A piece in its stage, with its value in terms of memory and locals."""

    piece: Piece
    level: int
    """Stages run by ascending level."""

    value: Value
    in_memory: bool
    """Whether its buffer is written to memory."""

    local: Local | None = None
    """The local in which later stages find its result."""

    locals: list[Local] = field(default_factory=list)
    """A reduction's locals, one a result; a store has none."""


def build_group(
    nest: Nest, name: str, leaves_memory: Callable[[str], bool], origins: tuple[Origin, ...]
) -> Group:
    """The group of a simplified nest. `leaves_memory` says of a written buffer that nobody outside
    reads it.
    """
    placed = _Placement(nest, leaves_memory).run()
    stages = _stages(placed, nest.analysis, leaves_memory)
    local = [p.local for p in placed if p.local is not None]
    local.extend(variable for p in placed for variable in p.locals)
    reads, writes = _memory(stages, {variable.name for variable in local}, nest.analysis)
    used = _locals_used(stages, local)
    return Group(
        name=name,
        outer=nest.outer,
        locals=used,
        stages=stages,
        reads=reads,
        writes=writes,
        origins=origins,
    )


class _Placement:
    """Gives each piece, in the order of the program, its level, and its value in terms of memory
    and locals.
    """

    def __init__(self, nest: Nest, leaves_memory: Callable[[str], bool]) -> None:
        self.nest = nest
        self.analysis = nest.analysis
        self.device = nest.device
        self.leaves_memory = leaves_memory
        self.by_element: dict[tuple[str, Index], Placed] = {}
        """By buffer and element: what the nest writes, it loads where a point wrote it."""

        self.taken: set[str] = set()
        self.bytes_of_rows = 0

    def run(self) -> list[Placed]:
        placed: list[Placed] = []
        for piece, level in zip(self.nest.pieces, _levels(self.nest), strict=True):
            replaced = partial(self._replacement, piece, level)
            value = self.analysis.expressions.rewrite(piece.value, {}, replaced)
            new = Placed(piece, level, value, in_memory=False)
            new.in_memory = any(not self.leaves_memory(w.buffer) for w in piece.writes)
            if piece.is_reduction:
                new.locals = [self._local(w.buffer) for w in piece.writes]
            placed.append(new)
            for write in piece.writes:
                self.by_element[write.buffer, write.index] = new
        return placed

    def _replacement(self, piece: Piece, level: int, load: Load) -> Value | None:
        """The value that replaces a load of a buffer that this nest writes; None keeps the load."""
        source = self.by_element.get((load.buffer, load.index))
        if source is None:
            return None
        if source.piece.is_reduction:
            position = [w.buffer for w in source.piece.writes].index(load.buffer)
            return self._read(source.locals[position], ZERO)
        if source.level == level and source.piece.inner == piece.inner:
            return source.value
        if source.piece.inner:
            if source.piece.is_store and self._is_cheap(source):
                return source.value
            is_new = source.local is None and not source.in_memory
            if is_new and not self._takes_row(source.piece.inner, load):
                self._keep_in_memory(load.buffer)
            if source.in_memory:
                return None
        if source.local is None:
            source.local = self._local(load.buffer, tuple(map(extent, source.piece.inner)))
        return self._read(source.local, row_index(source.piece.inner))

    def _is_cheap(self, source: Placed) -> bool:
        cheap = self.analysis.cost(source.value) <= RECOMPUTED_COST
        inner = frozenset(source.piece.inner)
        loads = sum(
            bool(load.indirect) or not inner.isdisjoint(load.index.free())
            for load in self.analysis.loads(source.value)
        )
        return cheap and loads <= (1 if source.in_memory else RECOMPUTED_LOADS)

    def _takes_row(self, inner: tuple[LoopSymbol, ...], load: Load) -> bool:
        """Whether a row of these loops fits beside those that there are; it is then one of them."""
        size = integer(load.dtype.bytes)
        for symbol in inner:
            size = size * symbol.extent
        if size.upper is None or size.upper > self.analysis.limits_of(self.device).row_bytes:
            return False
        if self.bytes_of_rows + size.upper > ALL_ROWS_BYTES:
            return False
        self.bytes_of_rows += size.upper
        return True

    def _keep_in_memory(self, buffer: str) -> None:
        """A buffer that is in memory is there with all its parts."""
        for (name, _), placed in self.by_element.items():
            if name == buffer:
                placed.in_memory = True

    def _local(self, buffer: str, size: tuple[Index, ...] = ()) -> Local:
        """A local for what a piece writes of a buffer; the parts of one have numbers."""
        name = self.analysis.free_name(f"{buffer}_local")
        part = 0
        while name in self.taken:
            part += 1
            name = self.analysis.free_name(f"{buffer}_part{part}_local")
        self.taken.add(name)
        return Local(name=name, dtype=self.analysis.buffers[buffer].layout.dtype, size=size)

    def _read(self, local: Local, index: Index) -> Value:
        return self.analysis.expressions.load(local.name, index, local.dtype)


def _levels(nest: Nest) -> list[int]:
    """The level of each piece: the first at which all results that it wants are there, but for
    reductions that are put off.
    """
    own = {
        (write.buffer, write.index): number
        for number, piece in enumerate(nest.pieces)
        for write in piece.writes
    }
    elements = [{(load.buffer, load.index) for load in p.loads(nest.analysis)} for p in nest.pieces]
    loaded = [{buffer for buffer, _ in own_elements} for own_elements in elements]
    levels: list[int] = []
    wanted_by: dict[int, list[int]] = {}
    for number, piece in enumerate(nest.pieces):
        sources = {own[place] for place in elements[number] if own.get(place, number) < number}
        for source in sources:
            wanted_by.setdefault(source, []).append(number)
        levels.append(max((_behind(nest, levels, n, piece) for n in sources), default=0))
    if any(piece.kind == "scatter" for piece in nest.pieces):
        return levels  # It changes memory, which is read before or behind it.
    for number, piece in enumerate(nest.pieces):
        if not piece.is_reduction:
            continue
        beside = {
            levels[n]
            for n, other in enumerate(nest.pieces)
            if n != number and other.inner == piece.inner and loaded[n] & loaded[number]
        }
        last = min((levels[n] for n in wanted_by.get(number, ())), default=1 + max(levels)) - 1
        if levels[number] not in beside:
            later = (level for level in beside if levels[number] < level <= last)
            levels[number] = min(later, default=levels[number])
    return levels


def _behind(nest: Nest, levels: Sequence[int], number: int, piece: Piece) -> int:
    """The first level at which `piece` can have the result of an earlier one."""
    source = nest.pieces[number]
    hands_on = source.is_store and source.inner == piece.inner
    return levels[number] if hands_on else levels[number] + 1


def row_index(inner: tuple[LoopSymbol, ...]) -> Index:
    """The row-major position of a point of the inner loops."""
    total = ZERO
    for symbol, stride in zip(inner, contiguous_strides(map(extent, inner)), strict=True):
        total = total + symbol.index * stride
    return total


# Stages -------------------------------------------------------------------------------------------


def _stages(
    placed: list[Placed], analysis: Analysis, leaves_memory: Callable[[str], bool]
) -> tuple[Stage, ...]:
    """One stage for each level and loops; results of reductions that memory needs are stored one
    level later.
    """
    actions_of: dict[tuple[int, tuple[LoopSymbol, ...]], list[Action]] = {}

    def add(level: int, inner: tuple[LoopSymbol, ...], action: Action) -> None:
        actions_of.setdefault((level, inner), []).append(action)

    for item in placed:
        for action in _actions(item):
            add(item.level, item.piece.inner, action)
        if item.piece.is_reduction and item.in_memory:
            for write, local in zip(item.piece.writes, item.locals, strict=True):
                if leaves_memory(write.buffer):
                    continue
                value = analysis.expressions.load(local.name, ZERO, local.dtype)
                store = Store(buffer=write.buffer, index=write.index, value=value)
                add(item.level + 1, (), store)
    ordered = sorted(actions_of.items(), key=lambda entry: entry[0][0])
    return tuple(Stage(inner=inner, actions=tuple(actions)) for (_, inner), actions in ordered)


def _actions(item: Placed) -> list[Action]:
    piece, value = item.piece, item.value
    match piece.kind:
        case "store":
            actions: list[Action] = []
            if item.local is not None:
                index = row_index(piece.inner)
                actions.append(Store(buffer=item.local.name, index=index, value=value))
            if item.in_memory:
                (write,) = piece.writes
                actions.append(Store(buffer=write.buffer, index=write.index, value=value))
            return actions
        case "scan":
            (write,) = piece.writes
            target, index = write.buffer, write.index
            if item.local is not None:
                target, index = item.local.name, row_index(piece.inner)
            return [ScanStore(buffer=target, index=index, kind=piece.mode, value=value)]
        case "gather":
            (write,) = piece.writes
            return [Gather(buffer=write.buffer, index=write.index, kind=piece.mode, value=value)]
        case "scatter":
            index, indirect = place_index(piece)
            return [
                Accumulate(
                    buffer=piece.writes[0].buffer,
                    index=index,
                    indirect=indirect,
                    mode=piece.mode,
                    value=value,
                )
            ]
        case kind:
            targets = tuple(local.name for local in item.locals)
            return [Reduce(targets=targets, kind=kind, value=value)]


def _memory(
    stages: tuple[Stage, ...], local: set[str], analysis: Analysis
) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """Buffers in memory that stages load, and that they write, each in order of first use."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for stage in stages:
        for action in stage.actions:
            for root in action_roots(action):
                reads.update(dict.fromkeys(load.buffer for load in analysis.loads(root)))
            if not isinstance(action, Reduce) and action.buffer not in local:
                writes[action.buffer] = None
    return (
        tuple(analysis.buffers[name] for name in reads if name not in local),
        tuple(analysis.buffers[name] for name in writes),
    )


def _locals_used(stages: tuple[Stage, ...], local: list[Local]) -> tuple[Local, ...]:
    """Locals in the order in which stages write them."""
    by_name = {variable.name: variable for variable in local}
    order: dict[str, None] = {}
    for stage in stages:
        for action in stage.actions:
            names = action.targets if isinstance(action, Reduce) else (action.buffer,)
            order.update(dict.fromkeys(name for name in names if name in by_name))
    return tuple(by_name[name] for name in order)
