"""Writes a fused group as a Triton kernel.

```
@triton.jit
def kernel(in0, out0, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    t0 = tl.load(in0 + 128*x + r)
    m0 = tl.reduce(t0, 1, functions.maximum, keep_dims=True)
    t1 = t0 - m0
    t2 = libdevice.exp(t1)
    m1 = tl.sum(t2, 1, keep_dims=True)
    t3 = functions.divide(t2, m1)
    tl.store(out0 + 128*x + r, t3)
```
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

from fusewright.ir.dtype import DType
from fusewright.ir.group import (
    Accumulate,
    Action,
    Gather,
    Group,
    Reduce,
    ScanStore,
    Store,
    action_roots,
)
from fusewright.ir.index import Index, RealSymbol, Symbol, integer, known_multiple
from fusewright.ir.kernel import KernelArgument, TritonFacts
from fusewright.ir.limits import aligned_elements
from fusewright.ir.proof import is_nonnegative
from fusewright.ir.value import Constant, Load, Masked, Value, postorder
from fusewright.kernels.triton.approximations import approximate
from fusewright.kernels.triton.axis_form import AxisStage, axis_stages
from fusewright.kernels.triton.early_ends import early_ends
from fusewright.kernels.triton.in_flight import (
    blocks_ahead,
    elements_a_thread,
    loads_ahead,
    loads_of_next_block,
)
from fusewright.kernels.triton.operations import POINTERS, TYPES, constant_text
from fusewright.kernels.triton.random import quarter
from fusewright.kernels.triton.reductions import (
    ARGUMENT,
    PLAIN,
    filled,
    from_zero,
    identity_text,
)
from fusewright.kernels.triton.scans import (
    SCANS,
    across_block,
    combined,
    scan_start,
    scanned,
)
from fusewright.kernels.triton.tiling import (
    Configuration,
    TileAxis,
    Tiling,
    programs,
)
from fusewright.kernels.triton.values import Body, Writer
from fusewright.records import record

ATOMICS = {"add": "tl.atomic_add", "min": "tl.atomic_min", "max": "tl.atomic_max"}


@record(kw_only=True)
class TritonKernel:
    """Source of one kernel, and what compiling and launching it needs."""

    source: str
    """A module with one function, `kernel`."""

    signature: tuple[tuple[str, str], ...]
    """Argument names with Triton's types, block sizes (`constexpr`) last."""

    blocks: tuple[tuple[str, int], ...]
    """The block sizes that the masks were chosen for; smaller powers of two do as well."""

    programs: Index
    """The number of programs that cover the work, over canonical sizes."""

    warps: int
    stages: int
    checks_bounds: bool
    """Whether it asserts loaded indices, for which it must be compiled with `debug`."""

    @property
    def facts(self) -> TritonFacts:
        """The facts that compiling and launching it needs."""
        return TritonFacts(
            types=tuple(kind for _, kind in self.signature if kind != "constexpr"),
            blocks=self.blocks,
            warps=self.warps,
            stages=self.stages,
            checks_bounds=self.checks_bounds,
        )


def write_kernel(
    writer: KernelWriter,
    arguments: Iterable[KernelArgument],
    sizes: tuple[Symbol, ...],
    configuration: Configuration,
) -> TritonKernel:
    """The kernel that `writer` writes the body of, in a configuration."""
    arguments = tuple(arguments)
    tiling = configuration.tiling
    rows = writer.write()
    names = [argument.name for argument in arguments] + [symbol.name for symbol in sizes]
    blocks = [(axis.block_name, axis.block) for axis in tiling.axes]
    parameters = ", ".join(names + [f"{name}: tl.constexpr" for name, _ in blocks])
    source = "\n".join([*imports(rows), "", "", "@triton.jit", f"def kernel({parameters}):", *rows])
    signature = [(argument.name, writer.kind(argument)) for argument in arguments]
    signature += [(symbol.name, _size_type(symbol)) for symbol in sizes]
    signature += [(name, "constexpr") for name, _ in blocks]
    return TritonKernel(
        source=source + "\n",
        signature=tuple(signature),
        blocks=tuple(blocks),
        programs=programs(tiling),
        warps=configuration.warps,
        stages=configuration.stages,
        checks_bounds=writer.values.checks_bounds,
    )


def imports(rows: Sequence[str]) -> list[str]:
    """The modules that the body mentions."""
    text = "\n".join(rows)
    lines = ["import triton", "import triton.language as tl"]
    if "libdevice." in text:
        lines.append("from triton.language.extra import libdevice")
    if "functions." in text:
        lines += ["", "from fusewright.runtime import triton_functions as functions"]
    return lines


def _size_type(symbol: Symbol) -> str:
    if isinstance(symbol, RealSymbol):
        return "fp64"
    narrow = symbol.upper is not None and symbol.upper < 1 << 31
    return "i32" if narrow else "i64"


class KernelWriter:
    """Writes the stages of one group, in order."""

    def __init__(self, group: Group, tiling: Tiling, program: str = "tl.program_id(0)") -> None:
        self.tiling = tiling
        self.program = program
        """The number of the program, as source."""

        self.local_types = {local.name: local.dtype for local in group.locals}
        self.types = {b.name: b.layout.dtype for b in (*group.reads, *group.writes)}
        self.stages = approximate(axis_stages(group, tiling))
        self.body = Body()
        self.numbers = frozenset(
            buffer.name for buffer in group.reads if buffer.layout.is_number_for(group.device)
        )
        """Arguments that are given by value."""

        self.values = Writer(tiling, self.local_types, self.numbers, self.body)
        self.ahead = blocks_ahead(group, tiling)
        self.elements = elements_a_thread(group, tiling)
        self.next_loads = loads_of_next_block(group, self.stages, tiling, self.elements)
        self.stored: set[str] = set()
        """Buffers in memory that earlier stages wrote."""

        self.gathered: dict[int, str] = {}
        """Variables that hold what is gathered along the outer axis, by the action's identity."""

    def kind(self, argument: KernelArgument) -> str:
        """The type of an argument in the kernel's signature."""
        pointer = POINTERS[argument.dtype]
        return pointer.removeprefix("*") if argument.name in self.numbers else pointer

    def write(self) -> list[str]:
        """The rows of the function's body."""
        self.values.prepare(self.roots())
        if self.tiling.walks_outer:
            self.stripe()
            return self.body.rows
        self.write_stages()
        rows, self.body = self.body.rows, Body()
        self.offsets()
        return self.body.rows + rows

    def roots(self) -> tuple[Value, ...]:
        """All values that the kernel is to compute."""
        return tuple(root for stage in self.stages for root in action_roots(*stage.actions))

    def write_stages(self) -> None:
        """Write the stages, in order."""
        if self.tiling.persistent:
            loads = loads_ahead(self.stages, self.tiling, self.types, self.elements)
            self.values.write(load for load in loads if not self.values.guards[id(load)])
        for stage in self.stages:
            self.stage(stage)

    # Stripes --------------------------------------------------------------------------------------

    def stripe(self) -> None:
        """Walk over the outer axis in blocks, and gather along it: what is the same for all of them
        stands before the loop, what was gathered is stored behind it.
        """
        (axis,), body = self.tiling.outer, self.body
        assert self.tiling.batch is not None, "a stripe has a number"
        wide = ".to(tl.int64)" if self.tiling.wide else ""
        body.add(f"{self.tiling.batch.name} = {self.program}{wide}")
        for row in self.tiling.axes[1:]:
            self.offset(row, "")
        gathers = [(a, s.inner) for s in self.stages for a in s.actions if isinstance(a, Gather)]
        for number, (action, inner) in enumerate(gathers):
            plain = PLAIN[action.kind][action.value.dtype.kind]
            identity = identity_text(plain.identity, action.value.dtype)
            name = self.gathered[id(action)] = f"g{number}_part"
            body.add(f"{name} = {filled(self.shape(inner), identity, action.value.dtype)}")
        order = postorder(self.roots())
        self.values.write(value for value in order if axis not in self.values.axes_of(value))
        count = self.values.index(axis.extent)
        if self.next_loads:
            self.offset(axis, "")
        ahead = [self.values.variable(self.values.load(load)) for load in self.next_loads]
        body.add(self.loop(axis, count))
        body.depth += 1
        if ahead:
            for load, name in zip(self.next_loads, ahead, strict=True):
                self.values.names[id(load)] = self.values.variable(name)
            last = f"{count} - {axis.block_name}"  # Loaded again at the end, and not looked at.
            self.offset(axis, f"tl.minimum(start + {axis.block_name}, {last})")
            for load, name in zip(self.next_loads, ahead, strict=True):
                body.add(f"{name} = {self.values.load(load)}")
        self.offset(axis, "start")
        self.write_stages()
        body.depth -= 1
        for action, inner in gathers:
            self.store_gathered(action, axis, inner)

    def store_gathered(self, action: Gather, axis: TileAxis, inner: TileAxis | None) -> None:
        """Store what was gathered along the outer axis: one row a stripe."""
        dtype, name = action.value.dtype, self.gathered[id(action)]
        plain = PLAIN[action.kind][dtype.kind]
        text = self.across(plain.across, name, axis, dtype)
        shape = self.values.shape(() if inner is None else (inner,))
        address = (
            f"{action.buffer} + (tl.zeros({shape}, tl.int32) + {self.values.index(action.index)})"
        )
        mask = self.values.mask_of(() if inner is None else (inner,))
        self.body.add(f"tl.store({address}, {text}{f', {mask}' if mask else ''})")

    def gather_along(self, action: Gather) -> None:
        """Take a block into what is gathered along the outer axis."""
        (axis,) = self.tiling.outer
        part = self.gathered[id(action)]
        combined = PLAIN[action.kind][action.value.dtype.kind].combine
        combined = combined.format(part, self.values.typed(action.value))
        self.body.add(f"{part} = {self.masked(combined, axis, part)}")

    # Axes -----------------------------------------------------------------------------------------

    def offsets(self) -> None:
        """The variables of the axes, and their masks."""
        program = self.program
        if self.tiling.wide:
            program += ".to(tl.int64)"
        outer, batch = self.tiling.outer, self.tiling.batch
        is_shared = len(outer) > 1 or batch is not None
        if is_shared:
            self.body.add(f"program = {program}")
            program = "program"
        for place, axis in reversed(list(enumerate(outer))):
            own = f"({program})" if is_shared else program
            if place or batch is not None:
                count = f"tl.cdiv({self.values.index(axis.extent)}, {axis.block_name})"
                own = f"({program} % {count})"
                program = f"({program} // {count})" if place > 1 else f"{program} // {count}"
            self.begin(axis, own)
        if batch is not None:
            self.body.add(f"{batch.name} = {program}")
        if self.tiling.persistent:
            for axis in self.tiling.axes[len(outer) :]:
                self.offset(axis, "")

    def begin(self, axis: TileAxis, block: str) -> None:
        """The variable of an outer axis, which begins at a block, and its mask."""
        start = f"{block} * {axis.block_name}"
        if axis in self.values.starts:
            self.body.add(f"{axis.start_name} = {start}")
            start = axis.start_name
        self.offset(axis, start)

    def offset(self, axis: TileAxis, start: str) -> None:
        """The variables of an axis for the block that begins at `start`, "" for 0, and its mask."""
        self.body.add(f"{axis.name} = {f'{start} + ' if start else ''}{self.lanes(axis)}")
        if axis in self.values.quartered:
            lanes = self.lanes(axis, f"functions.quarters({axis.block_name})")
            begin = f"({start} >> 2) + " if start else ""
            self.body.add(f"{quarter(axis).name} = {begin}{lanes}")
        if self.values.is_masked(axis):
            self.body.add(f"{axis.name}mask = {axis.name} < {self.values.index(axis.extent)}")

    def lanes(self, axis: TileAxis, lanes: str = "") -> str:
        """The places within a block, along the dimension of its axis; or other numbers of it."""
        lanes = lanes or f"tl.arange(0, {axis.block_name})"
        if self.tiling.rank > 1:
            inside = [":" if n == axis.position else "None" for n in range(self.tiling.rank)]
            lanes += f"[{', '.join(inside)}]"
        if self.tiling.wide and axis not in self.tiling.outer:
            lanes += ".to(tl.int64)"
        return lanes

    def loop(self, axis: TileAxis, count: str) -> str:
        """The head of a loop over the blocks of an axis of `count` points."""
        is_short = axis.extent.is_constant and int(axis.extent) <= self.ahead * axis.block
        if not self.ahead or is_short:
            return f"for start in range(0, {count}, {axis.block_name}):"
        stages = f"num_stages={self.ahead + 1}"
        return f"for start in tl.range(0, {count}, {axis.block_name}, {stages}):"

    # Stages ---------------------------------------------------------------------------------------

    def stage(self, stage: AxisStage) -> None:
        order = list(postorder(action_roots(*stage.actions)))
        if self.reads_what_was_stored(order):
            self.body.add("tl.debug_barrier()")
        if stage.inner is None or self.tiling.persistent:
            # Loads first, since a store may be to what was loaded from; masked ones behind their
            # masks. Each store right behind its value: Triton 3.6 cannot lay out some kernels that
            # store all values at the end.
            masked = [value for value in order if isinstance(value, Masked)]
            loads = [value for value in order if isinstance(value, Load)]
            self.values.write(postorder((*masked, *loads)))
            for action in stage.actions:
                self.values.write(postorder(action_roots(action)))
                self.action(action, stage.inner)
        else:
            self.walk(stage, stage.inner, order)
        written = {a.buffer for a in stage.actions if not isinstance(a, Reduce)}
        self.stored |= written & set(self.types)
        self.values.forget_loads(frozenset(written & set(self.types)))

    def reads_what_was_stored(self, order: list[Value]) -> bool:
        """Whether other threads' stores must have arrived."""
        return any(
            isinstance(value, Load)
            and value.buffer in self.stored
            and (value.buffer, value.index) not in self.values.locals
            for value in order
        )

    def walk(self, stage: AxisStage, axis: TileAxis, order: list[Value]) -> None:
        """A stage that walks over its rows in blocks."""
        if not stage.actions:
            return
        along = [value for value in order if axis in self.values.axes_of(value)]
        across = [value for value in order if axis not in self.values.axes_of(value)]
        count = self.values.index(axis.extent)
        # Where there are no rows, nothing that the rows share need be in memory.
        may_be_empty = not is_nonnegative(axis.extent - 1)
        self.values.condition = f"{count} > 0" if may_be_empty else ""
        self.values.write(across)
        self.values.condition = ""
        reductions = [action for action in stage.actions if isinstance(action, Reduce)]
        for reduce in reductions:
            self.start(reduce, axis)
        scans = [action for action in stage.actions if isinstance(action, ScanStore)]
        for scan in scans:
            self.body.add(f"{scan.buffer}_carry = {scan_start(scan, self.shape(None))}")
        self.values.policies = self.eviction_policies(stage)
        whole = self.whole_blocks(stage, axis)
        self.values.whole = axis if whole else None
        count = self.early_end(stage, axis) or count
        self.body.add(self.loop(axis, str(whole) if whole else count))
        self.body.depth += 1
        self.block(stage, axis, along, "start")
        self.body.depth -= 1
        if whole:
            self.values.whole = None
            self.values.forget(along)
            self.block(stage, axis, along, str(whole))
        self.values.forget(order if may_be_empty else along)
        for reduce in reductions:
            self.finish(reduce)

    def early_end(self, stage: AxisStage, axis: TileAxis) -> str:
        """A variable for where the last of a tile's rows ends, which memory tells; "": they end
        together.
        """
        ends = early_ends(stage.actions, axis.symbol)
        if not ends:
            return ""
        typed, varies = self.values.typed, self.values.axes_of
        texts = [f"tl.max({typed(end)})" if varies(end) else typed(end) for end in ends]
        last = functools.reduce(lambda one, other: f"tl.maximum({one}, {other})", texts)
        self.body.add(f"{axis.name}end = tl.minimum({last}, {self.values.index(axis.extent)})")
        return f"{axis.name}end"

    def block(self, stage: AxisStage, axis: TileAxis, along: Sequence[Value], start: str) -> None:
        """One block of a stage that walks over its rows, with the values that vary along them."""
        self.offset(axis, start)
        self.values.write(along)
        for action in stage.actions:
            if isinstance(action, Reduce):
                self.gather(action, axis)
            else:
                self.action(action, axis)

    def whole_blocks(self, stage: AxisStage, axis: TileAxis) -> int:
        """The elements of a row's whole blocks, where the last one is done apart: rows of memory
        begin aligned, and end in the middle of a piece that a thread stores at once, so that a
        mask would have it store element by element. 0: blocks are alike.
        """
        if not axis.is_masked or not axis.extent.is_constant or axis.extent.constant < axis.block:
            return 0
        if any(action.kind == "welford" for action in stage.actions if isinstance(action, Reduce)):
            return 0
        stores = (action for action in stage.actions if isinstance(action, Store))
        if not any(self.is_cut_short(store, axis) for store in stores):
            return 0
        return axis.extent.constant // axis.block * axis.block

    def is_cut_short(self, store: Store, axis: TileAxis) -> bool:
        """Whether a store's rows begin at aligned addresses and are no whole pieces of them."""
        dtype = self.types.get(store.buffer)
        if dtype is None or store.index.stride(axis.symbol) != 1:
            return False
        unit = aligned_elements(dtype)
        first = store.index.substitute({axis.symbol: integer(0)})
        return known_multiple(first, unit) and not known_multiple(axis.extent, unit)

    def eviction_policies(self, stage: AxisStage) -> dict[int, str]:
        """How long caches keep what a stage loads of its rows, by load: rows that a later stage
        walks over again stay as long as they can, and go first where it is the last to read them.
        """
        place = next(number for number, own in enumerate(self.stages) if own is stage)
        earlier, later = (
            {load.buffer for own in stages for load in self.loads_of_rows(own)}
            for stages in (self.stages[:place], self.stages[place + 1 :])
        )
        policies: dict[int, str] = {}
        for load in self.loads_of_rows(stage):
            if load.buffer in later:
                policies[id(load)] = "evict_last"
            elif load.buffer in earlier:
                policies[id(load)] = "evict_first"
        return policies

    def loads_of_rows(self, stage: AxisStage) -> Iterator[Load]:
        """Loads of elements that each program has its own of, where a stage walks over rows."""
        if stage.inner is None:
            return
        outer = {axis.symbol for axis in self.tiling.outer}
        for value in postorder(action_roots(*stage.actions)):
            if isinstance(value, Load) and value.buffer in self.types:
                free = value.index.free()
                if stage.inner.symbol in free and outer & free:
                    yield value

    def action(self, action: Action, axis: TileAxis | None) -> None:
        match action:
            case Store(buffer=buffer, index=index, value=value):
                self.store(buffer, index, self.values.typed(value), axis)
            case ScanStore(buffer=buffer, index=index):
                assert axis is not None, "a scan has a loop"
                self.store(buffer, index, self.scan(action, axis), axis)
            case Accumulate():
                self.accumulate(action, axis)
            case Gather():
                self.gather_along(action)
            case Reduce():
                if axis is None:
                    self.reduce_one(action)
                else:
                    self.reduce(action, axis)

    # Memory ---------------------------------------------------------------------------------------

    def store(self, buffer: str, index: Index, text: str, axis: TileAxis | None) -> None:
        if buffer in self.local_types:
            self.values.locals[buffer, index] = text
            return
        # Where an axis has one point, its variable is 0: it gives the address the tile's shape.
        along = (*self.tiling.outer, *(() if axis is None else (axis,)))
        shaped = index
        for dimension in along:
            if dimension.extent == 1 and dimension.symbol not in index.free():
                shaped = shaped + dimension.symbol
        address = self.values.address(buffer, shaped)
        mask = self.values.mask_of(self.values.index_axes(shaped))
        self.body.add(f"tl.store({address}, {text}{f', {mask}' if mask else ''})")
        is_kept = axis is None or self.tiling.persistent
        if is_kept and text.isidentifier():
            self.values.locals[buffer, index] = text

    def accumulate(self, action: Accumulate, axis: TileAxis | None) -> None:
        axes = (*self.tiling.outer, *((axis,) if axis is not None else ()))
        index = self.values.index(action.index)
        shape = self.shape(axis)
        address = f"{action.buffer} + (tl.zeros({shape}, tl.int32) + {index})"
        mask = self.values.mask_of(axes)
        value = self.values.typed(action.value)
        suffix = f", {mask}" if mask else ""
        if action.mode == "store":
            self.body.add(f"tl.store({address}, {value}{suffix})")
        else:
            # Nobody reads it before the kernel ends: to order other accesses would only cost time.
            suffix += ', sem="relaxed"'
            self.body.add(f"{ATOMICS[action.mode]}({address}, {value}{suffix})")

    def shape(self, axis: TileAxis | None) -> str:
        """The shape of a tile in a stage over `axis`."""
        return self.values.shape((*self.tiling.outer, *(() if axis is None else (axis,))))

    # Scans ----------------------------------------------------------------------------------------

    def scan(self, action: ScanStore, axis: TileAxis) -> str:
        """The variable of a scan's results, in the buffer's type: of whole rows, or of blocks, each
        of which goes on from what was carried to it.
        """
        name, total = f"{action.buffer}_carry", f"{action.buffer}_scan"
        value, kind = self.row(action.value, axis), action.kind
        from_end = self.tiling.mirrored
        if from_end:  # Lanes past the beginning of a row come first.
            value = self.masked(
                value, axis, identity_text(SCANS[kind].identity, action.value.dtype)
            )
        self.body.add(f"{total} = {scanned(action, value, axis.position, from_end=from_end)}")
        if not self.tiling.persistent:
            neutral = identity_text(SCANS[kind].identity, action.value.dtype)
            block = across_block(kind, self.masked(value, axis, neutral), axis.position)
            self.body.add(f"{total} = {combined(kind, name, total)}")
            self.body.add(f"{name} = {combined(kind, name, block)}")
        held = (self.types | self.local_types)[action.buffer]
        if held is not action.value.dtype:
            self.body.add(f"{total} = {total}.to({TYPES[held]})")
        return total

    # Reductions -----------------------------------------------------------------------------------

    def reduce(self, action: Reduce, axis: TileAxis) -> None:
        """A reduction of rows that the tile holds whole."""
        value = self.row(action.value, axis)
        dtype = action.value.dtype
        targets = self.targets(action)
        position = axis.position
        if action.kind == "welford":
            self.two_passes(value, targets, axis)
        elif action.kind in ARGUMENT:
            least = identity_text(ARGUMENT[action.kind], dtype)
            masked = self.masked(value, axis, least)
            places = f"tl.broadcast_to({axis.name}, {self.shape(axis)})"
            pair = f"({masked}, {places})"
            result = f"tl.reduce({pair}, {position}, functions.{action.kind}, keep_dims=True)"
            self.body.add(f"_, {targets[0]} = {result}")
            self.body.add(f"{targets[0]} = {targets[0]}.to(tl.int64)")
        else:
            plain = PLAIN[action.kind][dtype.kind]
            masked = self.masked(value, axis, identity_text(plain.identity, dtype))
            result = self.across(plain.across, masked, axis, dtype)
            if action.kind in ("sum", "dot") and dtype.is_float:
                result = self.total(result, axis)
            self.body.add(f"{targets[0]} = {result}")

    def reduce_one(self, action: Reduce) -> None:
        """The reduction of one element: itself at place 0, without deviation."""
        value = self.values.typed(action.value)
        targets = self.targets(action)
        if action.kind in ARGUMENT:
            self.body.add(f"{targets[0]} = {constant_text(0, DType.I64)}")
        else:
            self.body.add(f"{targets[0]} = {value}")
        if action.kind == "welford":
            self.body.add(f"{targets[1]} = {constant_text(0.0, action.value.dtype)}")

    def two_passes(self, value: str, targets: list[str], axis: TileAxis) -> None:
        """Mean, then squared deviations, of rows in registers."""
        mean, deviation = targets
        count = self.values.index(axis.extent)
        total = f"tl.sum({self.masked(value, axis, '0.0')}, {axis.position}, keep_dims=True)"
        self.body.add(f"{mean} = {self.total(total, axis)}")
        self.body.add(f"{mean} = {mean} / {count}")
        self.body.add(f"{deviation} = {value} - {mean}")
        squares = self.masked(f"{deviation} * {deviation}", axis, "0.0")
        self.body.add(f"{deviation} = tl.sum({squares}, {axis.position}, keep_dims=True)")

    def total(self, text: str, axis: TileAxis) -> str:
        """A sum of floats over rows that the tile holds whole, which begins at 0: so it does anyway
        where lanes past the end hold zeros.
        """
        has_zeros = self.values.is_masked(axis) and axis.extent.is_constant
        return text if has_zeros else from_zero(text)

    def start(self, action: Reduce, axis: TileAxis) -> None:
        """Accumulators, one an element of the tile."""
        name = action.targets[0]
        shape = self.shape(axis)
        dtype = action.value.dtype
        if action.kind == "welford":
            for part in ("mean", "deviation"):
                self.body.add(f"{name}_{part} = {filled(shape, '0.0', dtype)}")
        elif action.kind in ARGUMENT:
            least = identity_text(ARGUMENT[action.kind], dtype)
            place = DType.I64 if self.tiling.wide else DType.I32
            last = identity_text("greatest", place)
            self.body.add(f"{name}_value = {filled(shape, least, dtype)}")
            self.body.add(f"{name}_place = {filled(shape, last, place)}")
        else:
            identity = identity_text(PLAIN[action.kind][dtype.kind].identity, dtype)
            self.body.add(f"{name}_part = {filled(shape, identity, dtype)}")

    def gather(self, action: Reduce, axis: TileAxis) -> None:
        """Combine one block into the accumulators."""
        name = action.targets[0]
        value = self.values.typed(action.value)
        if action.kind == "welford":
            # A lane past the end takes its own mean in, which changes nothing.
            taken = self.masked(value, axis, f"{name}_mean")
            one = constant_text(1.0, action.value.dtype)
            share = f"{one} / (start // {axis.block_name} + 1)"
            parts = f"{name}_mean, {name}_deviation"
            self.body.add(f"{parts} = functions.welford_step({parts}, {taken}, {share})")
        elif action.kind in ARGUMENT:
            least = identity_text(ARGUMENT[action.kind], action.value.dtype)
            pair = f"{name}_value, {name}_place"
            lane = self.masked(value, axis, least)
            place = self.masked(axis.name, axis, self.last())
            self.body.add(f"{pair} = functions.{action.kind}({pair}, {lane}, {place})")
        else:
            plain = PLAIN[action.kind][action.value.dtype.kind]
            part = f"{name}_part"
            combined = plain.combine.format(part, value)
            self.body.add(f"{part} = {self.masked(combined, axis, part)}")

    def finish(self, action: Reduce) -> None:
        """One result a row."""
        axis = next(axis for axis in self.tiling.inner if axis is not None)
        targets = self.targets(action)
        name = action.targets[0]
        if action.kind == "welford":
            self.body.add(f"{name}_weight = {self.turns(axis, action.value.dtype)}")
            parts = ", ".join(f"{name}_{part}" for part in ("mean", "deviation", "weight"))
            self.body.add(f"{', '.join(targets)} = functions.welford({parts}, {axis.position})")
        elif action.kind in ARGUMENT:
            pair = f"({name}_value, {name}_place)"
            result = f"tl.reduce({pair}, {axis.position}, functions.{action.kind}, keep_dims=True)"
            self.body.add(f"_, {name} = {result}")
            self.body.add(f"{name} = {name}.to(tl.int64)")
        else:
            dtype = action.value.dtype
            plain = PLAIN[action.kind][dtype.kind]
            self.body.add(f"{name} = {self.across(plain.across, f'{name}_part', axis, dtype)}")

    def turns(self, axis: TileAxis, dtype: DType) -> str:
        """How many elements each lane has seen of rows that were walked over."""
        count, block = self.values.index(axis.extent), axis.block_name
        if not axis.is_masked:
            count = count if axis.extent.is_constant else f"({count})"
            return filled(self.shape(axis), f"{count} // {block}", dtype)
        text = f"(({count} + {block} - 1 - {self.lanes(axis)}) // {block}).to({TYPES[dtype]})"
        return f"tl.broadcast_to({text}, {self.shape(axis)})"

    def across(self, template: str, value: str, axis: TileAxis, dtype: DType) -> str:
        """A reduction across a block; small integers come back in their own type."""
        text = template.format(value, axis=axis.position)
        small = dtype.is_integer and dtype.bits < 32
        return f"{text}.to({TYPES[dtype]})" if small else text

    def row(self, value: Value, axis: TileAxis) -> str:
        """The value with a lane for each element of the rows."""
        if axis in self.values.axes_of(value):
            return self.values.operand(value)
        if isinstance(value, Constant):
            return constant_text(value.value, value.dtype).replace("[]", self.shape(axis), 1)
        return f"tl.broadcast_to({self.values.operand(value)}, {self.shape(axis)})"

    def masked(self, text: str, axis: TileAxis, otherwise: str) -> str:
        """The text where the lane is within the row, else `otherwise`."""
        if not self.values.is_masked(axis):
            return text
        return f"tl.where({axis.name}mask, {text}, {otherwise})"

    def last(self) -> str:
        return identity_text("greatest", DType.I64 if self.tiling.wide else DType.I32)

    def targets(self, action: Reduce) -> list[str]:
        """The variables of the locals that a reduction fills."""
        for name in action.targets:
            assert (name, integer(0)) not in self.values.locals, f"{name} is filled twice"
            self.values.locals[name, integer(0)] = name
        return list(action.targets)
