"""The place where code is being written: the loops and lanes around it, and what is known at each
level.

A kernel is a nest of levels: the function's entry, the loop over units of work, the loop over
vector lanes, inner loops. Each level collects its own lines, and a value is written at the
outermost level whose variables it needs; so whatever does not change in a loop stands before that
loop, without a pass that would find it:

```
level 0  entry                 pointers, size symbols
level 1    loop over units     i0, addresses of rows, locals of finished stages
level 2      loop over lanes   r0 in steps of 16: loads, arithmetic, stores
```

Each level also keeps what was written there, to be used again. Three rules make that safe, whoever
asks:

- A register is kept at the level being written, and looked for from there outwards: its definition
  stands before its use.
- A loop's level ends with the loop, and no loop stands inside another over the same symbol: while a
  register is kept, the loop variables have the values that it was made from.
- An expression over loaded indices is kept under the registers that hold them (`expression_key`):
  under another mask an index is loaded anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fusewright.ir.index import Index, LoopSymbol, Symbol
from fusewright.ir.value import Value
from fusewright.kernels.analysis import Dependences
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.records import field, record
from fusewright.runtime.llvm_engine import CpuTarget

I64 = VectorType("i64")
POINTER = VectorType("ptr")

SLOT_ALIGNMENT = 64
"""Bytes that divide the places of memory in the frame."""

Guard = tuple[Value, ...]
"""The masks, outermost first, under which a value is wanted."""


@record(frozen=False)
class Level:
    """One loop's body, or a straight stretch of code, being written."""

    symbols: frozenset[Symbol] = frozenset()
    """Loop variables that change here."""

    lines: list[str] = field(default_factory=list)
    known: dict[object, Register] = field(default_factory=dict)
    """Results written here that may be used again, by key."""

    is_floor: bool = False
    """Code inside may not move further out: it stands behind a test."""


@record
class Lanes:
    """The vectors being written: lane l of a value belongs to `symbol` + l."""

    symbol: Symbol
    """The loop variable; its register holds the value of the first lane."""

    count: int
    mask: Register | None
    """Lanes that are inside the loop; None where all are."""

    inside: int | None = None
    """The number of lanes, the first ones, for which the mask holds, where that is a constant."""

    ends: tuple[int, int] | None = None
    """The least and the greatest value of the loop variable in lanes inside, where known."""


@record
class LaneBlock:
    """A run of elements of an outer loop, through which stages go inside their own loops."""

    symbol: LoopSymbol
    start: Register
    stop: Register
    size: int
    """Elements that memory for the run has room for: whole steps."""


@record(frozen=False)
class Scope:
    """The state of one kernel's emission."""

    b: IRBuilder
    target: CpuTarget
    dependences: Dependences
    pointers: dict[str, Register] = field(default_factory=dict)
    """Start of each buffer's data and of each local, by name."""

    row_locals: dict[str, bool] = field(default_factory=dict)
    """Locals, by name: whether they are rows."""

    written: frozenset[str] = frozenset()
    """Buffers in memory that the group writes."""

    stored_here: frozenset[str] = frozenset()
    """Buffers and locals that the current stage stores: what is read of them is read where it
    stands."""

    local_lanes: int = 1
    """Lanes of locals: those of the outer loop where it is the one vectorised."""

    levels: list[Level] = field(default_factory=lambda: [Level()])
    symbols: dict[Symbol, Register] = field(default_factory=dict)
    """Current value of loop variables and canonical sizes, as i64 scalars, and of loaded
    indices."""

    loaded: dict[Symbol, None] = field(default_factory=dict)
    """The members of `symbols` that are loaded from memory as indices."""

    lanes: Lanes | None = None
    block: LaneBlock | None = None
    stage_level: int = 0
    """Level at which the current stage begins: locals set by earlier stages are known there."""

    tiles: dict[int, Register] = field(default_factory=dict)
    """Loads and stores (by identity) of the turn that is being written whose vectors are, or are to
    be, in a row of a tile in the frame.
    """

    status_slot: Register | None = None
    nowhere_slots: dict[int, Register] = field(default_factory=dict)
    """Memory of the function's frame that `status` and `nowhere` give, once it is asked for; of so
    many bytes."""

    @property
    def lane_count(self) -> int:
        return 1 if self.lanes is None else self.lanes.count

    # -- levels -------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """The level being written: the innermost, but for what is written `at` one further out."""
        return self.b.level

    @contextmanager
    def at(self, level: int) -> Iterator[None]:
        """Write at an outer level; what is written there must not open basic blocks."""
        assert level <= self.depth, "what is written further out is wanted here"
        outer_level = self.b.level
        self._write_to(level)
        try:
            yield
        finally:
            self._write_to(outer_level)

    def _write_to(self, level: int) -> None:
        self.b.level, self.b.lines = level, self.levels[level].lines

    def level_of_symbols(self, symbols: frozenset[Symbol] | set[Symbol]) -> int:
        """The outermost level at which all of these loop variables have their values."""
        for level in range(self.depth, 0, -1):
            if self.levels[level].is_floor or self.levels[level].symbols & symbols:
                return level
        return 0

    def turning(self, index: Index, level: int) -> frozenset[Symbol]:
        """The variables of the innermost loop around, at `level` or further out, that `index`
        changes in; none where there is no such loop.
        """
        for number in range(level, -1, -1):
            if found := self.levels[number].symbols & index.free():
                return frozenset(found)
        return frozenset()

    def recall(self, key: object) -> Register | None:
        """The result kept under `key` at the level being written, or further out."""
        for level in range(self.depth, -1, -1):
            register = self.levels[level].known.get(key)
            if register is not None:
                return register
        return None

    def remember(self, key: object, register: Register) -> Register:
        """Keep `register` under `key` at the level being written, for as long as that lasts."""
        self.levels[self.depth].known[key] = register
        return register

    def expression_key(self, index: Index) -> object:
        """The key that tells `index` from the same expression over other values of loaded
        indices.
        """
        if not self.loaded:
            return index
        free = index.free()
        return (index, *(self.symbols[s].text for s in self.loaded if s in free))

    def set_loaded(self, symbol: Symbol, register: Register) -> None:
        """Let `symbol` stand for an index that was loaded, in the expressions written next."""
        self.symbols[symbol] = register
        self.loaded[symbol] = None

    def forget(self, level: int) -> None:
        """Use nothing again that was written at `level` or further in: memory has changed."""
        for inner in self.levels[level:]:
            inner.known.clear()

    @contextmanager
    def level(self, *symbols: Symbol, is_floor: bool = False) -> Iterator[Level]:
        """Collect lines in a level of their own; the caller places them."""
        assert self.depth == len(self.levels) - 1, "a loop stands in the innermost level"
        inner = Level(frozenset(symbols), is_floor=is_floor)
        self.levels.append(inner)
        self._write_to(self.depth + 1)
        try:
            yield inner
        finally:
            self.levels.pop()
            self._write_to(self.depth - 1)

    @contextmanager
    def loop(
        self,
        symbols: Sequence[Symbol],
        start: Register,
        stop: Register,
        step: int,
        *,
        runs: bool,
        confines: bool = True,
    ) -> Iterator[Register]:
        """A loop from `start` to `stop`, whose counter is the value of the first of `symbols`.

        The other symbols change with it, and the caller says how. `runs` where at least one turn is
        certain: the body is tested at its end. Else a test stands before it, and nothing moves out
        past that test, unless it `confines` nothing: where what does not change in the loop is
        wanted in any case.
        """
        assert self.symbols.keys().isdisjoint(symbols), "a loop over a symbol stands in another"
        if _is_single(start, stop, step):
            with self._single_turn(symbols, start) as current:
                yield current
            return
        if runs:
            with self._certain_loop(symbols, start, stop, step) as current:
                yield current
            return
        b = self.b
        inside, after = b.name("some"), b.name("none")
        with self.level(is_floor=confines) as guarded:
            b.block = inside
            with self._certain_loop(symbols, start, stop, step) as current:
                yield current
        # The test is written last, so that what the loop moved further out stands before it.
        some = b.compare("lt", start, stop)
        b.line(f"br i1 {some.text}, label %{inside}, label %{after}")
        b.label(inside)
        b.lines += guarded.lines
        b.line(f"br label %{after}")
        b.label(after)

    @contextmanager
    def _single_turn(self, symbols: Sequence[Symbol], start: Register) -> Iterator[Register]:
        """A loop of one turn: its body alone."""
        with self.level(*symbols) as body:
            self.symbols[symbols[0]] = start
            yield start
        self._end(symbols)
        self.b.lines += body.lines

    def _end(self, symbols: Sequence[Symbol]) -> None:
        """Forget the values of a loop's variables: behind it they have none."""
        for symbol in symbols:
            self.symbols.pop(symbol, None)

    @contextmanager
    def _certain_loop(
        self, symbols: Sequence[Symbol], start: Register, stop: Register, step: int
    ) -> Iterator[Register]:
        b = self.b
        label, before = b.name("loop"), b.block
        following = Register(b, f"%{label}.n", I64, self.depth)
        with self.level(*symbols) as body:
            current = Register(b, f"%{label}.i", I64, self.depth)
            self.symbols[symbols[0]] = current
            b.block = label
            yield current
            last = b.block
        self._end(symbols)
        b.line(f"br label %{label}")
        b.label(label)
        b.line(
            f"{current.text} = phi i64 [ {start.text}, %{before} ], [ {following.text}, %{last} ]"
        )
        b.lines += body.lines
        b.line(f"{following.text} = add nsw i64 {current.text}, {step}")
        more = b.compare("lt", following, stop)
        b.line(f"br i1 {more.text}, label %{label}, label %{label}.x")
        b.label(f"{label}.x")

    # -- registers ----------------------------------------------------------------------------

    def integer(self, value: int) -> Register:
        return self.b.constant(I64, value)

    def slot(self, kind: str, count: int | Register = 1) -> Register:
        """Memory in the function's frame, made once at its entry."""
        number = (
            "" if count == 1 else f", i64 {count.text if isinstance(count, Register) else count}"
        )
        with self.at(0):
            return self.b.emit(POINTER, f"alloca {kind}{number}, align {SLOT_ALIGNMENT}")

    def lane_slot(self, kind: VectorType) -> Register:
        """Memory for one element a lane: for a vector, or for all lanes of a block."""
        if self.block is None:
            return self.slot(str(kind))
        return self.slot(kind.element, self.block.size)

    def at_lanes(self, slot: Register, element: str) -> Register:
        """The part of a `lane_slot` that belongs to the lanes being written."""
        if self.block is None:
            return slot
        key = ("at lanes", slot.text)
        register = self.recall(key)
        if register is None:
            with self.at(self.level_of_symbols({self.block.symbol})):
                place = self.symbols[self.block.symbol] - self.block.start
                register = self.remember(
                    key,
                    self.b.emit(
                        POINTER, f"getelementptr {element}, ptr {slot.text}, i64 {place.text}"
                    ),
                )
        return register

    def spread(self, value: Register) -> Register:
        """`value` in every lane, if it is a scalar and lanes are being written."""
        lanes = self.lane_count
        if lanes == 1 or value.type.lanes == lanes:
            return value
        key = ("spread", value.text, value.type, lanes)
        register = self.recall(key)
        if register is not None:
            return register
        with self.at(value.level):
            return self.remember(key, self.b.splat(value, lanes))

    def lane_positions(self, element: str = "i64") -> Register:
        """0, 1, 2, … by lane."""
        return self.b.vector(element, range(self.lane_count))

    def fault(self, lanes: Register, code: int, active: Register | None) -> None:
        """Let the kernel return `code` if `lanes` (i1) hold anywhere among the active ones."""
        b = self.b
        if active is not None:
            if lanes.type.lanes == 1:
                active = any_lane(b, active)
            elif active.type.lanes == 1:
                active = b.splat(active, lanes.type.lanes)
            lanes = lanes & active
        hit = any_lane(b, lanes)
        status = self.status()
        current = b.emit(I64, f"load i64, ptr {status.text}, align 8")
        changed = b.select(hit, self.integer(code), current)
        b.line(f"store i64 {changed.text}, ptr {status.text}, align 8")

    def status(self) -> Register:
        """The memory that keeps the code of a fault until the kernel returns it; 0 while all is
        well.
        """
        if self.status_slot is None:
            self.status_slot = self.slot("i64")
            with self.at(0):
                self.b.line(f"store i64 0, ptr {self.status_slot.text}, align 8")
        return self.status_slot

    def write_return(self) -> None:
        """The kernel's end, at its entry's level: return the code of a fault, or 0."""
        code = "0"
        if self.status_slot is not None:
            code = self.b.emit(I64, f"load i64, ptr {self.status_slot.text}, align 8").text
        self.b.line(f"ret i64 {code}")

    def nowhere(self, size: int = 16) -> Register:
        """So many bytes that may be written and read without consequence."""
        if size not in self.nowhere_slots:
            self.nowhere_slots[size] = self.slot(f"[{size} x i8]")
        return self.nowhere_slots[size]


def _is_single(start: Register, stop: Register, step: int) -> bool:
    """Whether a loop between constants makes exactly one turn."""
    if start.text.startswith("%") or stop.text.startswith("%"):
        return False
    return 0 < int(stop.text) - int(start.text) <= step


def any_lane(b: IRBuilder, lanes: Register) -> Register:
    """Whether an i1 holds in any lane, as a scalar."""
    if lanes.type.lanes == 1:
        return lanes
    return b.emit(
        VectorType("i1"),
        f"call i1 @llvm.vector.reduce.or.{lanes.type.suffix}({lanes.type} {lanes.text})",
    )


def load_arguments(scope: Scope, tensors: Sequence[str], sizes: Sequence[Symbol]) -> None:
    """Load every tensor's data pointer and every size from the argument slots."""
    b = scope.b
    for number, name in enumerate(tensors):
        slot = b.emit(POINTER, f"getelementptr inbounds ptr, ptr %arguments, i64 {number}")
        b.line(f"%{name} = load ptr, ptr {slot.text}, align 8")
        scope.pointers[name] = Register(b, f"%{name}", POINTER)
    for number, symbol in enumerate(sizes, len(tensors)):
        slot = b.emit(POINTER, f"getelementptr inbounds ptr, ptr %arguments, i64 {number}")
        b.line(f"%{symbol} = load i64, ptr {slot.text}, align 8")
        scope.symbols[symbol] = Register(b, f"%{symbol}", I64)
