"""From a group to the LLVM IR of one kernel: the loops, and the actions inside them.

The function made is `i64 kernel(ptr arguments, i64 begin, i64 end)`: `arguments` holds the
tensors' data pointers and then the sizes; the units of work from `begin` to `end` are done. It
returns the code of a fault that its checks found, such as an index out of range, or 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from math import prod

from fusewright.ir.dtype import DType
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
)
from fusewright.ir.index import Index, LoopSymbol, SizeSymbol, Symbol, integer
from fusewright.ir.limits import CACHE_LINE, WALKED_LANES
from fusewright.ir.raising import early_checks
from fusewright.kernels.analysis import Dependences, loaded_in, stage_values, stored_in
from fusewright.kernels.llvm import indexing, memory
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.conditions import middle
from fusewright.kernels.llvm.loops import Loops
from fusewright.kernels.llvm.mathematics import definitions
from fusewright.kernels.llvm.plan import InnerPlan, KernelPlan
from fusewright.kernels.llvm.reduce import write_reductions
from fusewright.kernels.llvm.reductions import Reducer
from fusewright.kernels.llvm.scans import Carry
from fusewright.kernels.llvm.scatter import accumulate, check_early
from fusewright.kernels.llvm.scope import POINTER, LaneBlock, Scope, load_arguments
from fusewright.kernels.llvm.squares import SquarePlace, in_squares
from fusewright.kernels.llvm.storage import MEMORY, REGISTER
from fusewright.kernels.llvm.tiles import STRIP, Squares, strips
from fusewright.kernels.llvm.values import evaluate
from fusewright.records import field, record
from fusewright.runtime.llvm_engine import CpuTarget

UNIT = SizeSymbol("unit")
"""The counter of units of work."""


@record(frozen=False)
class GroupWriter:
    """Writes one group according to its plan."""

    group: Group
    plan: KernelPlan
    scope: Scope
    loops: Loops
    dtypes: dict[str, DType]
    """Element type of each buffer and local."""

    row_sizes: dict[str, int | Register] = field(default_factory=dict)
    """Elements of each local that is a row, known at the function's entry, where its memory is
    made."""

    carries: dict[int, Carry] = field(default_factory=dict)
    """The scans of the stage that is being written, by identity of their actions."""

    rows: dict[str, Register] = field(default_factory=dict)
    """The memory of each row, which the loop over whole vectors and the narrower steps after it
    share."""

    @classmethod
    def of(cls, group: Group, plan: KernelPlan, scope: Scope) -> GroupWriter:
        """The writer of a group into a scope."""
        dtypes = {buffer.name: buffer.layout.dtype for buffer in (*group.reads, *group.writes)}
        dtypes |= {local.name: local.dtype for local in group.locals}
        loops = Loops(plan, scope, _plans_of_stages(group, plan), _middles(group, plan))
        return cls(group, plan, scope, loops, dtypes)

    def write(self) -> None:
        """All units of work from %begin to %end."""
        scope, plan = self.scope, self.plan
        begin, end = self._parameter("begin"), self._parameter("end")
        self.row_sizes = {row.name: self._row_size(row) for row in self.group.locals if row.size}
        checks = early_checks(self.group)
        if checks is not None:
            check_early(scope, checks)
        if plan.outer_lane is not None and not plan.points:
            self._write_line(plan.outer_lane, begin, end)
            return
        is_point = len(plan.points) == 1 and plan.blocks == 1
        symbols = plan.points if is_point else (UNIT, *plan.points)
        with scope.loop(symbols, begin, end, 1, runs=False) as unit:
            block = None if is_point else self._decode(unit)
            if plan.outer_lane is None:
                if self.group.walked:
                    self._write_stripe()
                else:
                    self.write_stages()
            else:
                start, stop = self._block_range(plan.outer_lane, block)
                if plan.by_rows:
                    self._rows_of_lanes(plan.outer_lane, start, stop, int(plan.block))
                else:
                    self._outer_lanes(plan.outer_lane, start, stop)

    def _parameter(self, name: str) -> Register:
        b = self.scope.b
        return Register(b, f"%{name}", VectorType("i64"))

    def _write_line(self, lane: LoopSymbol, begin: Register, end: Register) -> None:
        """One loop, cut into blocks: the blocks from begin to end are one run of elements, which is
        gone through by rows in parts as wide as is good for that.
        """
        b, scope = self.scope.b, self.scope
        if self.plan.blocks == 1:
            start, stop = scope.integer(0), indexing.scalar(scope, lane.extent)
        else:
            size = indexing.scalar(scope, self.plan.block)
            start = begin * size
            stop = b.intrinsic("smin", end * size, indexing.scalar(scope, lane.extent))
        if not self.plan.by_rows:
            self._outer_lanes(lane, start, stop)
            return
        part = LoopSymbol("part", lane.extent)
        with scope.loop((part,), start, stop, WALKED_LANES, runs=False) as first:
            last = b.intrinsic("smin", first + WALKED_LANES, stop)
            self._rows_of_lanes(lane, first, last, WALKED_LANES)

    def _decode(self, unit: Register) -> Register | None:
        """Set the point loops (and return the block number) of a unit, the last loop fastest."""
        scope, b = self.scope, self.scope.b
        rest = unit
        block: Register | None = None
        if self.plan.blocks != 1:
            count = indexing.scalar(scope, self.plan.blocks)
            block = b.binary("urem", rest, count)
            rest = b.binary("udiv", rest, count)
        for position, symbol in reversed(list(enumerate(self.plan.points))):
            value = rest
            if position > 0:
                count = indexing.scalar(scope, symbol.extent)
                value = b.binary("urem", rest, count)
                rest = b.binary("udiv", rest, count)
            scope.symbols[symbol] = value
        return block

    def _block_range(self, lane: LoopSymbol, block: Register | None) -> tuple[Register, Register]:
        scope, b = self.scope, self.scope.b
        whole = indexing.scalar(scope, lane.extent)
        if block is None:
            return scope.integer(0), whole
        size = indexing.scalar(scope, self.plan.block)
        start = block * size
        return start, b.intrinsic("smin", start + size, whole)

    # -- lanes --------------------------------------------------------------------------------

    def _outer_lanes(self, lane: LoopSymbol, start: Register, stop: Register) -> None:
        """All stages on vectors of points of an outer loop."""

        def body() -> None:
            self.scope.local_lanes = self.scope.lane_count
            if self.plan.tile is None:
                self.write_stages()
            else:
                self._tiled(lane, self.plan.tile)

        self.loops.lane_loop_in_parts(lane, start, stop, self.plan.wide, body)

    def _rows_of_lanes(self, lane: LoopSymbol, start: Register, stop: Register, most: int) -> None:
        """Stage after stage on all of these points of an outer loop, at most so many, at each turn
        of its own loops.
        """
        size = -(-most // self.plan.wide) * self.plan.wide
        self.scope.block = LaneBlock(lane, start, stop, size)
        self.write_stages()
        self.scope.block = None

    def _tiled(self, lane: LoopSymbol, tile: LoopSymbol) -> None:
        """A strip of the loop over `tile`, by squares of lanes x lanes where whole ones fit, then
        one by one."""
        scope, b = self.scope, self.scope.b
        first = indexing.scalar(scope, strips(tile).index * STRIP)
        with scope.at(first.level):
            stop = first + STRIP
            if tile.extent % STRIP != 0:
                stop = b.intrinsic("smin", stop, indexing.scalar(scope, tile.extent))
        whole = first
        if scope.lanes is not None and scope.lanes.mask is None:
            squares = Squares.along(self.group.stages, lane, tile)
            whole = in_squares(scope, squares, scope.lane_count, first, stop, self._tile_row)
        if whole is stop:
            return
        with scope.loop((tile,), whole, stop, 1, runs=False):
            self.write_stages()

    def _tile_row(self, sources: Sequence[SquarePlace], row: Register) -> None:
        """All stages at one turn of a tile."""
        if self.plan.asks_ahead:
            self._ask_ahead(sources, row + self.scope.lane_count)
        self.write_stages()

    def _ask_ahead(self, sources: Sequence[SquarePlace], row: Register) -> None:
        """Ask for a row of what the next tile along the lanes is made of, and for the memory behind
        what is stored now. Rows a power of two apart push each other out of the first cache, so
        that they come to the second.
        """
        scope, b = self.scope, self.scope.b
        for source in sources:
            offset = row * source.step
            text = f"getelementptr {source.element}, ptr {source.start.text}, i64 {offset.text}"
            memory.prefetch(b, b.emit(POINTER, text), 0, 1, cache=2)
        for stage in self.group.stages:
            for action in stage.actions:
                assert isinstance(action, Store), "a group of tiles only stores"
                dtype = self.dtypes[action.buffer]
                place = indexing.address(scope, action.buffer, action.index, dtype)
                stored = scope.lane_count * dtype.bytes
                memory.prefetch(b, place, max(stored, CACHE_LINE), stored, writes=True)

    # -- stages -------------------------------------------------------------------------------

    def _write_stripe(self) -> None:
        """All stages at one walked point after the other; what is gathered along them stands in its
        place in memory from the first point on, a row that stays in the nearest cache.
        """
        for stage in self.group.stages:
            for gather in stage.actions:
                if isinstance(gather, Gather):
                    self.loops.inner_loops(stage, partial(self._begin, gather), in_parts=False)
        self.loops.nest(self.group.walked, None, 1, self.write_stages)

    def _begin(self, gather: Gather) -> None:
        """Store what changes nothing where the current element(s) are gathered."""
        b, dtype = self.scope.b, gather.value.dtype
        (first,) = Reducer(gather.kind, dtype).start(b, self.scope.lane_count)
        memory.store(self.scope, gather.buffer, gather.index, dtype, first)

    def _gather(self, gather: Gather) -> None:
        """Take the current element(s) into what was gathered of them so far."""
        scope, dtype = self.scope, gather.value.dtype
        lanes = scope.lanes
        gathered = memory.load(
            scope,
            gather.buffer,
            gather.index,
            dtype,
            active=None if lanes is None else lanes.mask,
            varies=lanes is not None,
        )
        new = scope.spread(evaluate(scope, gather.value))
        (total,) = Reducer(gather.kind, dtype).step(scope.b, (gathered,), (new,))
        memory.store(scope, gather.buffer, gather.index, dtype, total)

    def write_stages(self) -> None:
        """All stages at the current point(s)."""
        self._make_locals()
        scope = self.scope
        scope.stage_level = scope.depth
        read: set[str] = set()
        for stage in self.group.stages:
            stored, loaded = stored_in(stage), loaded_in(stage)
            scope.stored_here = stored & loaded
            self.carries = {
                id(action): Carry.begin(scope, action)
                for action in stage.actions
                if isinstance(action, ScanStore)
            }
            if any(isinstance(action, Reduce) for action in stage.actions):
                write_reductions(self.loops, stage, self.write_action)
            else:
                write = partial(self.write_actions, stage)
                self.loops.inner_loops(stage, write, in_parts=True)
            read |= loaded
            if read & stored:
                scope.forget(scope.stage_level)

    def _make_locals(self) -> None:
        """Memory for locals: a register's worth, or a row."""
        scope = self.scope
        lanes = scope.local_lanes
        for local in self.group.locals:
            if not local.size:
                kind = VectorType(REGISTER[local.dtype], lanes)
                scope.pointers[local.name] = scope.lane_slot(kind)
                continue
            if local.name not in self.rows:
                kind = VectorType(MEMORY[local.dtype], lanes)
                self.rows[local.name] = scope.slot(str(kind), self.row_sizes[local.name])
            scope.pointers[local.name] = self.rows[local.name]

    def _row_size(self, row: Local) -> int | Register:
        total = prod(row.size, start=integer(1))
        return int(total) if total.is_constant else indexing.scalar(self.scope, total)

    # -- actions ------------------------------------------------------------------------------

    def write_actions(self, stage: Stage) -> None:
        for action in stage.actions:
            self.write_action(action)

    def write_action(self, action: Action) -> None:
        """A store, scan or scatter at the current point(s)."""
        match action:
            case Store(buffer=buffer, index=index, value=value):
                row = self.scope.tiles.get(id(action))
                if row is not None:
                    memory.store_tile_row(self.scope, row, value.dtype, evaluate(self.scope, value))
                else:
                    self._store(buffer, index, evaluate(self.scope, value))
            case ScanStore(buffer=buffer, index=index):
                carry = self.carries[id(action)]
                self._store(buffer, index, carry.take_in(self.scope, action, self.dtypes[buffer]))
            case Accumulate():
                accumulate(self.scope, action, self.dtypes[action.buffer])
            case Reduce():
                raise AssertionError("reductions are written by `reduce`")
            case Gather():
                self._gather(action)

    def _store(self, buffer: str, index: Index, value: Register) -> None:
        scope = self.scope
        dtype = self.dtypes[buffer]
        is_row = scope.row_locals.get(buffer)
        if is_row is False:
            memory.store_local(scope, buffer, scope.spread(value))
        elif is_row and scope.local_lanes > 1:
            memory.store_row_element(scope, buffer, index, dtype, value)
        else:
            memory.store(scope, buffer, index, dtype, value)
        if buffer in scope.stored_here:
            scope.forget(scope.depth)


def _plans_of_stages(group: Group, plan: KernelPlan) -> dict[int, InnerPlan]:
    return {id(stage): own for stage, own in zip(group.stages, plan.inner, strict=True)}


def _middles(group: Group, plan: KernelPlan) -> dict[tuple[LoopSymbol, int], tuple[int, int]]:
    """By lane loop and width of its steps, the part in which no condition on its variable changes.
    Stages that loop over the same symbol may have steps of different widths, and one of them, with
    conditions of its own, says where both are cut.
    """
    if plan.lanes == 1:
        return {}
    parts: dict[tuple[LoopSymbol, int], tuple[int, int] | None] = {}
    if plan.outer_lane is not None:
        values = [*chain.from_iterable(map(stage_values, group.stages))]
        parts[plan.outer_lane, plan.wide] = middle(values, plan.outer_lane, plan.wide)
    for own, stage in zip(plan.inner, group.stages, strict=True):
        if own.lane is not None:
            parts[own.lane, own.wide] = middle([*stage_values(stage)], own.lane, own.wide)
    return {lane: part for lane, part in parts.items() if part is not None}


def write_kernel(
    group: Group,
    tensors: Sequence[str],
    sizes: Sequence[Symbol],
    plan: KernelPlan,
    target: CpuTarget,
) -> str:
    """The module text of a canonically named group: math functions used, then `kernel`."""
    scope = begin_kernel(group, tensors, sizes, target)
    GroupWriter.of(group, plan, scope).write()
    return finish_kernel(scope)


def begin_kernel(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol], target: CpuTarget
) -> Scope:
    """The scope in which a kernel of a canonically named group is written, its arguments loaded."""
    builder = IRBuilder(contract=True, has_scalef=target.has_scalef)
    scope = Scope(
        b=builder,
        target=target,
        dependences=Dependences(),
        row_locals={local.name: bool(local.size) for local in group.locals},
        written=frozenset(buffer.name for buffer in group.writes),
    )
    builder.lines = scope.levels[0].lines
    load_arguments(scope, tensors, sizes)
    return scope


def finish_kernel(scope: Scope) -> str:
    """The module text of the kernel that was written in a scope."""
    scope.write_return()
    blocks = definitions(list(scope.b.required), scope.target.has_scalef)
    head = "define i64 @kernel(ptr %arguments, i64 %begin, i64 %end) nounwind {\nentry:"
    blocks.append("\n".join((head, *entry_first(scope), "}")))
    return "\n\n".join(blocks) + "\n"


def entry_first(scope: Scope) -> list[str]:
    """The lines of the body, with allocations moved to the front, where LLVM looks for them."""
    lines = scope.levels[0].lines
    allocations = [line for line in lines if " = alloca " in line and ", i64 %" not in line]
    chosen = set(allocations)
    return allocations + [line for line in lines if line not in chosen]
