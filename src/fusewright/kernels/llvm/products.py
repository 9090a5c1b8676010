"""Matrix products: tiles of results in registers, over panels of the right operand.

```
for each unit: a block of rows by a panel of columns       divided among threads
  for the depth in blocks                                  a panel stays in the second cache
    pack the panel: right operand, row by row of the depth
    for the rows, a tile at a time
      for the depth, one by one                            all in registers
        tile[r] += left[row + r, k] * panel[k]             r < tile.rows
      block[row + r] += tile[r]                            the next panel is prefetched meanwhile
  for each row: what follows, on vectors of columns        the epilogue: bias, activation, …
```
The scheme is that of K. Goto and R. van de Geijn, "Anatomy of high-performance matrix
multiplication" (2008). The left operand is read where it lies. Rows past the last are the last
row computed again, and columns past the last are zeros in the panel, so that the innermost loop
knows no edges; the epilogue stores what is inside. Results of a unit are gathered in the function's
frame, so that a sum over the depth is as long as a block of it, and its parts are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from fusewright.ir.group import Group
from fusewright.ir.index import Index, LoopSymbol, SizeSymbol, Symbol, known_multiple
from fusewright.ir.products import MatrixProduct, load_of
from fusewright.ir.value import Value
from fusewright.kernels.llvm import indexing, memory
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.emit import GroupWriter, begin_kernel, finish_kernel
from fusewright.kernels.llvm.product_plan import FEW_ROWS, Form, ProductTiling
from fusewright.kernels.llvm.scope import POINTER, Lanes, Scope
from fusewright.kernels.llvm.storage import MEMORY, REGISTER, convert, from_memory
from fusewright.kernels.llvm.tiles import call_transpose
from fusewright.kernels.llvm.values import evaluate, evaluate_lanes
from fusewright.records import record, replace
from fusewright.runtime.llvm_engine import CpuTarget

UNIT, RUN, TILE, ROW_TILE, CHOICE = (
    SizeSymbol(name) for name in ("unit", "run", "tile", "row_tile", "choice")
)
"""The counters of units of work, of the depth by blocks, and of tiles; and one that makes a turn
where a form is chosen.
"""

AHEAD_COLUMN, AHEAD_STEP = SizeSymbol("ahead_column"), SizeSymbol("ahead_step")
"""The column and the step of the depth from which memory is prefetched."""


@record
class Range:
    """The beginning and the end of a part of a loop."""

    start: Register
    stop: Register


@record(frozen=False, kw_only=True)
class ProductWriter:
    """Writes one product."""

    product: MatrixProduct
    tiling: ProductTiling
    scope: Scope
    writer: GroupWriter
    """Writes the epilogue."""

    block: Register
    """Results of a unit: rows of `tiling.columns` elements."""

    panel: Register
    """The packed panel: rows of `tiling.columns` elements, one a step of the depth."""

    row_symbols: tuple[Symbol, ...]
    """The rows of a tile; empty where the product has one row."""

    column_symbols: tuple[LoopSymbol, ...]
    """The columns of a tile whose vectors run along the depth."""

    @property
    def element(self) -> str:
        return REGISTER[self.product.dtype]

    @property
    def depth(self) -> Index:
        """The number of products that are added up."""
        return self.product.depth.extent

    @property
    def has_depth(self) -> bool:
        return indexing.runs(self.depth)

    # -- units --------------------------------------------------------------------------------

    def write(self, begin: Register, end: Register) -> None:
        """The units of work from `begin` to `end`."""
        scope, plan = self.scope, self.tiling.plan
        with scope.loop((UNIT, *plan.points), begin, end, 1, runs=False) as unit:
            rows, columns = self._decode(unit)
            self._unit(rows, columns)

    def _decode(self, unit: Register) -> tuple[Range, Range]:
        """The rows and columns of a unit; its batches are set. Panels are fastest, then rows."""
        scope, tiling = self.scope, self.tiling
        rest, panel = self._divided(unit, tiling.plan.blocks)
        columns = self._part(panel, tiling.columns, self.product.columns.extent)
        rows = Range(scope.integer(0), scope.integer(1))
        if self.product.rows is not None:
            count = self.product.rows.extent
            rest, block = self._divided(rest, (count + (tiling.block - 1)) // tiling.block)
            rows = self._part(block, tiling.block, count)
        for symbol in reversed(tiling.plan.points):
            rest, scope.symbols[symbol] = self._divided(rest, symbol.extent)
        return rows, columns

    def _divided(self, number: Register, count: Index) -> tuple[Register, Register]:
        """`number` divided by a count, and what is left."""
        b = self.scope.b
        if count == 1:
            return number, self.scope.integer(0)
        divisor = indexing.scalar(self.scope, count)
        return b.binary("udiv", number, divisor), b.binary("urem", number, divisor)

    def _part(self, number: Register, size: int, count: Index) -> Range:
        """The part of that number, of `size` elements or up to the end."""
        whole = indexing.scalar(self.scope, count)
        if count.is_constant and int(count) <= size:
            return Range(self.scope.integer(0), whole)
        start = number * size
        stop = start + size
        if not known_multiple(count, size):
            stop = self.scope.b.intrinsic("smin", stop, whole)
        return Range(start, stop)

    def _unit(self, rows: Range, columns: Range) -> None:
        """The product of a block of rows and a panel, and what follows from it."""
        if self.tiling.few is None:
            self._compute(self.tiling.form, rows, columns)
        else:
            self._choose(self.tiling.few, rows, columns)
        self._epilogue(rows, columns)

    def _choose(self, few: Form, rows: Range, columns: Range) -> None:
        """The product, in the form that is right for as many rows as there are."""
        scope, b = self.scope, self.scope.b
        assert self.product.rows is not None
        count = indexing.scalar(scope, self.product.rows.extent)
        zero, one = scope.integer(0), scope.integer(1)
        turns = b.select(b.compare("le", count, FEW_ROWS), one, zero)
        with scope.loop((CHOICE,), zero, turns, 1, runs=False):
            self._compute(few, rows, columns)
        with scope.loop((CHOICE,), turns, one, 1, runs=False):
            self._compute(self.tiling.form, rows, columns)

    def _compute(self, form: Form, rows: Range, columns: Range) -> None:
        """The results of a unit, into its block."""
        if form is Form.ALONG_DEPTH:
            self._along_depth(rows, columns)
        else:
            self._across_columns(form, rows, columns)

    def _across_columns(self, form: Form, rows: Range, columns: Range) -> None:
        """The product, by vectors of columns."""
        scope, tiling = self.scope, self.tiling
        whole = indexing.scalar(scope, self.depth)
        is_single = self.has_depth and self.depth.is_constant and int(self.depth) <= tiling.depth
        if not is_single:
            self._clear()
        with scope.loop(
            (RUN,), scope.integer(0), whole, tiling.depth, runs=self.has_depth
        ) as start:
            stop = whole if is_single else scope.b.intrinsic("smin", start + tiling.depth, whole)
            steps = Range(start, stop)
            if form is Form.PACKED:
                self._pack(steps, columns)
                ahead = self._ahead(steps, columns)
                self._tiles(rows, scope.integer(0), steps, adds=not is_single, ahead=ahead)
            else:
                self._lanes(
                    columns,
                    tiling.columns,
                    lambda offset: self._tiles(rows, offset, steps, adds=not is_single),
                )

    def _lanes(self, columns: Range, wide: int, body: Callable[[Register], None]) -> None:
        """`body` on vectors of columns, given how far they are from the first one."""
        symbol = self.product.columns

        def at_columns() -> None:
            body(self.scope.symbols[symbol] - columns.start)

        loops = self.writer.loops
        loops.lane_loop(symbol, columns.start, columns.stop, wide, at_columns)

    def _clear(self) -> None:
        """Begin all results of a unit with 0."""
        scope, columns = self.scope, self.tiling.columns
        row = VectorType(self.element, columns)
        end = scope.integer(self.tiling.block * columns)
        with scope.loop((TILE,), scope.integer(0), end, columns, runs=True) as place:
            self._store(scope.b.constant(row, 0.0), self._place(self.block, place))

    # -- tiles --------------------------------------------------------------------------------

    def _tiles(
        self,
        rows: Range,
        offset: Register,
        steps: Range,
        *,
        adds: bool,
        ahead: tuple[Register, Register] | None = None,
    ) -> None:
        """All tiles of a unit, at columns `offset` from its first one; lanes are being written
        where the right operand is read where it lies. Results are stored, or added. `ahead`: where
        the panel begins that is packed next; each tile prefetches a share of it.
        """
        scope, b, tiling = self.scope, self.scope.b, self.tiling
        symbols = tuple(self.row_symbols)
        with scope.loop((TILE, *symbols), rows.start, rows.stop, tiling.rows, runs=True) as first:
            for number, symbol in enumerate(symbols):
                scope.symbols[symbol] = self._row(first, number)
            if ahead is not None:
                self._prefetch(*ahead, b.binary("udiv", first - rows.start, tiling.rows))
            width = tiling.columns if scope.lanes is None else scope.lane_count
            kind = VectorType(self.element, width)
            tile = [scope.slot(str(kind)) for _ in range(tiling.rows)]
            for slot in tile:
                b.line(f"store {kind} {kind.constant(0.0)}, ptr {slot.text}")
            with scope.loop(
                (self.product.depth,), steps.start, steps.stop, 1, runs=self.has_depth
            ) as step:
                across = self._across(step - steps.start, kind)
                for number, slot in enumerate(tile):
                    element = b.splat(self._left(number), width)
                    total = b.emit(kind, f"load {kind}, ptr {slot.text}")
                    total = b.fused(element, across, total)
                    b.line(f"store {kind} {total.text}, ptr {slot.text}")
            for number, slot in enumerate(tile):
                total = b.emit(kind, f"load {kind}, ptr {slot.text}")
                place = (first - rows.start + number) * tiling.columns + offset
                pointer = self._place(self.block, place)
                if adds:
                    total = self._load(kind, pointer) + total
                self._store(total, pointer)

    def _ahead(self, steps: Range, columns: Range) -> tuple[Register, Register] | None:
        """The first column and the first step of the panel that is packed next: below this one, or
        at the top of the columns behind it; behind the last, the first again. None where there is
        no other.
        """
        scope, b, wide = self.scope, self.scope.b, self.tiling.columns
        extents = (self.product.columns.extent, self.depth)
        sizes = (wide, self.tiling.depth)
        if all(e.is_constant and int(e) <= s for e, s in zip(extents, sizes, strict=True)):
            return None
        count, depth = (indexing.scalar(scope, extent) for extent in extents)
        zero = scope.integer(0)
        goes_on = b.compare("lt", steps.stop, depth)
        behind = columns.start + wide
        behind = b.select(b.compare("lt", behind, count), behind, zero)
        return b.select(goes_on, columns.start, behind), b.select(goes_on, steps.stop, zero)

    def _prefetch(self, column: Register, step: Register, tile: Register) -> None:
        """Have a share of the panel that begins at a column and a step brought into the caches,
        while the tile of that number is computed: a weight that was not used lately comes from
        memory, and packing would wait for it. Addresses past the operand's end do no harm.
        """
        scope, b, tiling = self.scope, self.scope.b, self.tiling
        load = load_of(self.product.right)
        runs, length = tiling.depth, tiling.columns
        symbols = (AHEAD_STEP, AHEAD_COLUMN)
        first, other = step, column
        if load.index.stride(self.product.depth) == 1:
            runs, length = length, runs
            symbols = (AHEAD_COLUMN, AHEAD_STEP)
            first, other = column, step
        index = load.index.substitute(
            {self.product.columns: AHEAD_COLUMN.index, self.product.depth: AHEAD_STEP.index}
        )
        share = -(-runs // -(-tiling.block // tiling.rows))
        start = first + tile * share
        stop = b.intrinsic("smin", start + share, first + runs)
        with scope.loop(symbols, start, stop, 1, runs=False):
            scope.symbols[symbols[1]] = other
            pointer = indexing.address(scope, load.buffer, index, load.dtype)
            memory.prefetch(b, pointer, 0, length * load.dtype.bytes)

    def _row(self, first: Register, number: int) -> Register:
        """A row of a tile, or the last row there is."""
        assert self.product.rows is not None
        count = self.product.rows.extent
        is_whole = known_multiple(count, self.tiling.rows)
        return self._clamped(first, number, count, is_whole=is_whole)

    def _clamped(self, first: Register, number: int, count: Index, *, is_whole: bool) -> Register:
        """`first + number`, or the last of `count` where that lies past it."""
        place = first + number if number else first
        if is_whole or not number:
            return place
        last = indexing.scalar(self.scope, count - 1)
        return self.scope.b.intrinsic("smin", place, last)

    def _across(self, step: Register, kind: VectorType) -> Register:
        """The columns of a tile at a step of the depth."""
        if self.scope.lanes is not None:
            return evaluate_lanes(self.scope, self.product.right)
        return self._load(kind, self._place(self.panel, step * self.tiling.columns))

    def _left(self, number: int) -> Register:
        """The left operand's element at a row of a tile and the current step of the depth."""
        scope, b = self.scope, self.scope.b
        load = load_of(self.product.left)
        index = load.index
        if self.product.rows is not None:
            index = index.substitute({self.product.rows: self.row_symbols[number].index})
        pointer = indexing.address(scope, load.buffer, index, load.dtype)
        kind = VectorType(MEMORY[load.dtype])
        loaded = b.emit(kind, f"load {kind}, ptr {pointer.text}, align {load.dtype.bytes}")
        return convert(b, from_memory(b, loaded, load.dtype), load.dtype, self.product.dtype)

    # -- sums along the depth -----------------------------------------------------------------

    def _along_depth(self, rows: Range, columns: Range) -> None:
        """The product, by vectors of steps of the depth, whose lanes are added up at the end."""
        scope, tiling = self.scope, self.tiling
        own = (TILE, *self.column_symbols)
        count = self.product.columns.extent
        with scope.loop(own, columns.start, columns.stop, tiling.across, runs=True) as first:
            for number, symbol in enumerate(self.column_symbols):
                whole = known_multiple(count, tiling.across)
                scope.symbols[symbol] = self._clamped(first, number, count, is_whole=whole)
            if self.product.rows is None:
                self._dot_tile(scope.integer(0), first - columns.start)
                return
            symbols = (ROW_TILE, *self.row_symbols)
            with scope.loop(symbols, rows.start, rows.stop, tiling.rows, runs=True) as row:
                for number, row_symbol in enumerate(self.row_symbols):
                    scope.symbols[row_symbol] = self._row(row, number)
                self._dot_tile(row - rows.start, first - columns.start)

    def _dot_tile(self, row: Register, column: Register) -> None:
        """A tile of results, each a vector of sums, stored at a row and column of the block."""
        scope, b, tiling = self.scope, self.scope.b, self.tiling
        depth, lanes = self.product.depth, tiling.lanes
        kind = VectorType(self.element, lanes)
        multiply = dot_of_pairs if tiling.pairs else IRBuilder.fused
        tile = [[scope.slot(str(kind)) for _ in range(tiling.across)] for _ in range(tiling.rows)]
        for slot in (slot for slots in tile for slot in slots):
            b.line(f"store {kind} {kind.constant(0.0)}, ptr {slot.text}")

        def step() -> None:
            right = [
                self._run(self.product.right, self.product.columns, symbol)
                for symbol in self.column_symbols
            ]
            for number, slots in enumerate(tile):
                own = self.row_symbols[number] if self.row_symbols else None
                left = self._run(self.product.left, self.product.rows, own)
                for slot, other in zip(slots, right, strict=True):
                    total = b.emit(kind, f"load {kind}, ptr {slot.text}")
                    total = multiply(b, left, other, total)
                    b.line(f"store {kind} {total.text}, ptr {slot.text}")

        whole = indexing.scalar(scope, depth.extent)
        steps = 2 * lanes if tiling.pairs else lanes
        self.writer.loops.lane_loop(depth, scope.integer(0), whole, steps, step)
        for number, slots in enumerate(tile):
            sums = [b.emit(kind, f"load {kind}, ptr {slot.text}") for slot in slots]
            place = (row + number) * tiling.columns + column
            folded = fold_together(b, sums)
            pointer = self._place(self.block, place)
            b.line(
                f"store {folded.type} {folded.text}, ptr {pointer.text}, "
                f"align {self.product.dtype.bytes}"
            )

    def _run(self, operand: Value, symbol: Symbol | None, own: Symbol | None) -> Register:
        """The lanes being written, steps of the depth, of an operand at a row or column of its."""
        scope = self.scope
        load = load_of(operand)
        assert scope.lanes is not None
        index = load.index
        if symbol is not None and own is not None:
            index = index.substitute({symbol: own.index})
        loaded = memory.load(scope, load.buffer, index, load.dtype, scope.lanes.mask, varies=True)
        if self.tiling.pairs:
            return loaded
        return convert(scope.b, loaded, load.dtype, self.product.dtype)

    # -- panels -------------------------------------------------------------------------------

    def _pack(self, steps: Range, columns: Range) -> None:
        """Fill the panel with the right operand at these steps of the depth."""
        scope, lanes = self.scope, self.tiling.lanes
        index = load_of(self.product.right).index
        end = columns.start + self.tiling.columns
        if index.stride(self.product.columns) == 1 or index.stride(self.product.depth) != 1:
            with self._depth(steps.start, steps.stop) as step:
                self._pack_row(step - steps.start, columns, columns.start, end)
            return
        whole = columns.start + ((columns.stop - columns.start) & -lanes)
        turned = steps.start + ((steps.stop - steps.start) & -lanes)
        symbol = self.product.columns
        with scope.loop((symbol,), columns.start, whole, lanes, runs=False) as first:
            scope.lanes = Lanes(symbol, lanes, None)
            self._pack_turned(steps.start, turned, first - columns.start)
            scope.lanes = None
        if not known_multiple(self.depth, lanes):
            self._pack_elements(
                Range(turned, steps.stop), Range(columns.start, whole), steps, columns
            )
        if not known_multiple(symbol.extent, self.tiling.columns):
            zeros = scope.b.constant(VectorType(self.element, lanes), 0.0)
            with self._depth(steps.start, steps.stop) as step:
                row = (step - steps.start) * self.tiling.columns - columns.start
                with scope.loop((TILE,), whole, end, lanes, runs=False) as first:
                    self._store(zeros, self._place(self.panel, row + first))
            self._pack_elements(steps, Range(whole, columns.stop), steps, columns)

    def _pack_elements(self, own: Range, part: Range, steps: Range, columns: Range) -> None:
        """The columns `part` at the steps `own` of a panel, one element after the other."""
        scope = self.scope
        with scope.loop((self.product.columns,), part.start, part.stop, 1, runs=False) as column:
            offset = column - columns.start
            with self._depth(own.start, own.stop) as step:
                value = evaluate(scope, self.product.right)
                place = (step - steps.start) * self.tiling.columns + offset
                pointer = self._place(self.panel, place)
                scope.b.line(
                    f"store {value.type} {value.text}, ptr {pointer.text}, "
                    f"align {self.product.dtype.bytes}"
                )

    def _pack_row(self, step: Register, columns: Range, start: Register, end: Register) -> None:
        """A row of the panel from `start` to `end`, with zeros behind the last column."""
        scope, b, lanes = self.scope, self.scope.b, self.tiling.lanes
        symbol = self.product.columns
        with scope.loop((symbol,), start, end, lanes, runs=False) as first:
            mask = None
            if not known_multiple(symbol.extent, self.tiling.columns):
                left = b.cast("trunc", columns.stop - first, "i32")
                mask = b.vector("i32", range(lanes)) < b.splat(left, lanes)
            scope.lanes = Lanes(symbol, lanes, mask)
            self._pack_vector(step, first - columns.start)
            scope.lanes = None

    def _pack_vector(self, step: Register, offset: Register) -> None:
        """The lanes being written, at a step of the depth."""
        value = evaluate_lanes(self.scope, self.product.right)
        place = step * self.tiling.columns + offset
        self._store(value, self._place(self.panel, place))

    def _pack_turned(self, start: Register, stop: Register, offset: Register) -> None:
        """The lanes being written, of an operand that is contiguous along the depth: by squares
        that are transposed in registers.
        """
        scope, b, lanes = self.scope, self.scope.b, self.tiling.lanes
        load = load_of(self.product.right)
        kind = VectorType(MEMORY[load.dtype], lanes)
        square = scope.slot(str(kind), lanes)
        corner = LoopSymbol("corner", self.depth)
        step = load.index.stride(self.product.columns)
        assert step is not None
        with scope.loop((corner,), start, stop, lanes, runs=False) as first:
            index = load.index.substitute({self.product.depth: corner.index})
            source = indexing.address(scope, load.buffer, index, load.dtype)
            call_transpose(b, source, indexing.scalar(scope, step), square, kind)
            with self._depth(first, first + lanes) as current:
                scope.tiles[id(load)] = b.emit(
                    POINTER,
                    f"getelementptr {kind}, ptr {square.text}, i64 {(current - first).text}",
                )
                self._pack_vector(current - start, offset)
                scope.tiles.clear()

    def _depth(self, start: Register, stop: Register) -> AbstractContextManager[Register]:
        return self.scope.loop((self.product.depth,), start, stop, 1, runs=False)

    # -- epilogue -----------------------------------------------------------------------------

    def _epilogue(self, rows: Range, columns: Range) -> None:
        """Store what follows from the results of a unit."""
        scope, product = self.scope, self.product

        def at_row(row: Register) -> None:
            self._lanes(columns, self.tiling.plan.wide, lambda offset: at_lanes(row, offset))

        def at_lanes(row: Register, offset: Register) -> None:
            place = (row - rows.start) * self.tiling.columns + offset
            scope.pointers[product.result] = self._place(self.block, place)
            scope.local_lanes = scope.lane_count
            self.writer.write_stages()

        if product.rows is None:
            at_row(rows.start)
            return
        with scope.loop((product.rows,), rows.start, rows.stop, 1, runs=True) as row:
            at_row(row)

    # -- memory -------------------------------------------------------------------------------

    def _place(self, base: Register, index: Register) -> Register:
        """Pointer to an element of the function's own memory."""
        return self.scope.b.emit(
            POINTER, f"getelementptr {self.element}, ptr {base.text}, i64 {index.text}"
        )

    def _alignment(self) -> int:
        return self.tiling.lanes * self.product.dtype.bytes

    def _load(self, kind: VectorType, pointer: Register) -> Register:
        text = f"load {kind}, ptr {pointer.text}, align {self._alignment()}"
        return self.scope.b.emit(kind, text)

    def _store(self, value: Register, pointer: Register) -> None:
        self.scope.b.line(
            f"store {value.type} {value.text}, ptr {pointer.text}, align {self._alignment()}"
        )


def dot_of_pairs(b: IRBuilder, left: Register, right: Register, total: Register) -> Register:
    """`total` and the products of each pair of bfloat16 (their bits, as integers) that lie side by
    side; of half as many as there may be in steps for what is left of a row. The processor takes
    subnormal factors for zeros, as it does in the library's products.
    """
    pairs = VectorType("bfloat", 2 * total.type.lanes)
    factors = [
        b.shuffle(bits, b.constant(bits.type, 0), range(pairs.lanes)) for bits in (left, right)
    ]
    values = [b.cast("bitcast", bits, "bfloat") for bits in factors]
    operands = ", ".join(f"{pairs} {value.text}" for value in values)
    call = f"call {total.type} @llvm.x86.avx512bf16.dpbf16ps.512"
    return b.emit(total.type, f"{call}({total.type} {total.text}, {operands})")


def fold_together(b: IRBuilder, vectors: Sequence[Register]) -> Register:
    """The sums of the lanes of each vector, side by side in one. A power of two of them, at most as
    many as there are lanes.

    Halves of two vectors are added at a time, so that the result has half of both: of 8 vectors, 3
    instructions for each sum.
    """
    part = vectors[0].type.lanes
    while part > 1:
        lanes = vectors[0].type.lanes
        low = [place for place in range(lanes) if place % part < part // 2]
        high = [place + part // 2 for place in low]
        if len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            low = [*low, *(lanes + place for place in low)]
            high = [*high, *(lanes + place for place in high)]
            vectors = [b.shuffle(x, y, low) + b.shuffle(x, y, high) for x, y in pairs]
        else:
            (whole,) = vectors
            if len(low) == 1:
                return b.extract(whole, low[0]) + b.extract(whole, high[0])
            vectors = [b.shuffle(whole, None, low) + b.shuffle(whole, None, high)]
        part //= 2
    (folded,) = vectors
    return folded


def write_product(
    group: Group,
    product: MatrixProduct,
    tensors: Sequence[str],
    sizes: Sequence[Symbol],
    tiling: ProductTiling,
    target: CpuTarget,
) -> str:
    """The module text of a canonically named group that is a matrix product."""
    scope = begin_kernel(group, tensors, sizes, target)
    others = tuple(local for local in group.locals if local.name != product.result)
    epilogue = replace(group, stages=product.epilogue, locals=others)
    element = REGISTER[product.dtype]
    rows = (
        ()
        if product.rows is None
        else tuple(LoopSymbol(f"row{number}", product.rows.extent) for number in range(tiling.rows))
    )
    is_packed = tiling.form is Form.PACKED
    panel = scope.slot(element, tiling.depth * tiling.columns) if is_packed else scope.nowhere()
    columns = tuple(
        LoopSymbol(f"column{number}", product.columns.extent) for number in range(tiling.across)
    )
    writer = ProductWriter(
        product=product,
        tiling=tiling,
        scope=scope,
        writer=GroupWriter.of(epilogue, tiling.plan, scope),
        block=scope.slot(element, tiling.block * tiling.columns),
        panel=panel,
        row_symbols=rows,
        column_symbols=columns,
    )
    i64 = VectorType("i64")
    writer.write(Register(scope.b, "%begin", i64), Register(scope.b, "%end", i64))
    return finish_kernel(scope)
