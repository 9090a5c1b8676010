"""Panels of the right operand of a matrix product, and tiles of its results over them.

for the depth in blocks
  pack the panel: right operand, row by row of the depth
  for the rows, a tile at a time
    for the depth, one by one
      tile[r] += left[row + r, k] * panel[k]
    block[row + r] += tile[r]
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from fusewright.ir.index import Index, LoopSymbol, SizeSymbol, Symbol, known_multiple
from fusewright.ir.products import MatrixProduct, load_of
from fusewright.kernels.llvm import indexing, memory
from fusewright.kernels.llvm.builder import Register, VectorType
from fusewright.kernels.llvm.product_plan import ProductTiling
from fusewright.kernels.llvm.scope import POINTER, Lanes, Scope
from fusewright.kernels.llvm.shared_tile import MOST_ROWS, call_tile
from fusewright.kernels.llvm.storage import MEMORY, REGISTER, convert, from_memory
from fusewright.kernels.llvm.tiles import call_transpose
from fusewright.kernels.llvm.values import evaluate, evaluate_lanes
from fusewright.records import record

RUN, TILE = SizeSymbol("run"), SizeSymbol("tile")
"""The counters of the depth by blocks, and of tiles."""

AHEAD_COLUMN, AHEAD_STEP = SizeSymbol("ahead_column"), SizeSymbol("ahead_step")
"""The column and the step of the depth from which memory is prefetched."""


@record
class Range:
    """The beginning and the end of a part of a loop."""

    start: Register
    stop: Register


OverColumns = Callable[[Callable[[Register], None]], None]
"""Runs a body on vectors of columns, given how far they are from the first one of the unit."""


@record(frozen=False, kw_only=True)
class PanelWriter:
    """Writes a unit of a product: the results of a block of rows and a panel of columns."""

    product: MatrixProduct
    tiling: ProductTiling
    scope: Scope
    block: Register
    """Results of a unit: rows of `tiling.columns` elements."""

    panel: Register
    """The packed panel: rows of `tiling.columns` elements, one a step of the depth."""

    square: Register
    """Memory in which a square of the right operand is turned, where one is."""

    row_symbols: tuple[Symbol, ...]
    """The rows of a tile; empty where the product has one row."""

    pairs: bool = False
    """Whether elements of the operands are pairs of bfloat16 (`pairs`)."""

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

    @property
    def is_single(self) -> bool:
        """Whether one block of the depth is all."""
        return self.has_depth and _is_at_most(self.depth, self.tiling.depth)

    @property
    def is_only_one(self) -> bool:
        """Whether one panel is the whole right operand."""
        extents = (self.product.columns.extent, self.depth)
        return all(map(_is_at_most, extents, (self.tiling.columns, self.tiling.depth)))

    def write(self, rows: Range, columns: Range, over: OverColumns | None = None) -> None:
        """The results of a unit, by vectors of columns: of a right operand that is packed, or is
        read where it lies, by the vectors that `over` makes.
        """
        scope, tiling = self.scope, self.tiling
        whole = indexing.scalar(scope, self.depth)
        tiles = self._tiles_of(rows)
        if not self.is_single:
            self._clear(tiles)
        with scope.loop(
            (RUN,), scope.integer(0), whole, tiling.depth, runs=self.has_depth
        ) as start:
            stop = whole
            if not (self.is_single and self.depth.is_constant):
                stop = scope.b.intrinsic("smin", start + tiling.depth, whole)
            steps = Range(start, stop)
            if over is None:
                self._pack(steps, columns)
                self._tiles(rows, scope.integer(0), steps, ahead=self._ahead(steps, columns, tiles))
            else:
                over(lambda offset: self._tiles(rows, offset, steps))

    def _tiles_of(self, rows: Range) -> Register:
        """The number of tiles of so many rows."""
        count = self.tiling.rows
        return self.scope.b.binary("udiv", rows.stop - rows.start + (count - 1), count)

    def _clear(self, tiles: Register) -> None:
        """Begin all results of a unit with 0."""
        scope, columns = self.scope, self.tiling.columns
        row = VectorType(self.element, columns)
        end = tiles * (self.tiling.rows * columns)
        with scope.loop((TILE,), scope.integer(0), end, columns, runs=True) as place:
            self.store(scope.b.constant(row, 0.0), self.place(self.block, place))

    # -- tiles --------------------------------------------------------------------------------

    def _tiles(
        self,
        rows: Range,
        offset: Register,
        steps: Range,
        ahead: tuple[Register, Register, Register] | None = None,
    ) -> None:
        """All tiles of a unit, at columns `offset` from its first one; lanes are being written
        where the right operand is read where it lies. `ahead`: where the panel begins that is
        packed next; each tile prefetches a share of it.
        """
        scope, b, tiling = self.scope, self.scope.b, self.tiling
        symbols = tuple(self.row_symbols)
        with scope.loop((TILE, *symbols), rows.start, rows.stop, tiling.rows, runs=True) as first:
            for number, symbol in enumerate(symbols):
                scope.symbols[symbol] = self.row(first, number)
            if ahead is not None:
                self._prefetch(*ahead, b.binary("udiv", first - rows.start, tiling.rows))
            left_step = self._left_step()
            if left_step is not None and scope.lanes is None and tiling.rows <= MOST_ROWS:
                self._shared_tile(first - rows.start, steps, left_step)
            else:
                self._own_tile(first - rows.start, offset, steps)

    def _left_step(self) -> Index | None:
        """The elements from one step of the depth to the next of the left operand, where that is
        the same everywhere.
        """
        step = load_of(self.product.left).index.stride(self.product.depth)
        if step is None or any(isinstance(symbol, LoopSymbol) for symbol in step.free()):
            return None
        return step

    def _shared_tile(self, row: Register, steps: Range, left_step: Index) -> None:
        """A tile at a row of the block, by a function that other products share."""
        scope, product, columns = self.scope, self.product, self.tiling.columns
        load = load_of(product.left)
        index = load.index.substitute({product.depth: RUN.index})
        own = [index]
        if product.rows is not None:
            own = [index.substitute({product.rows: symbol.index}) for symbol in self.row_symbols]
        call_tile(
            scope.b,
            VectorType(self.element, columns),
            (load.dtype, product.dtype),
            block=self.place(self.block, row * columns),
            panel=self.panel,
            steps=steps.stop - steps.start,
            left_step=indexing.scalar(scope, left_step),
            left=[indexing.address(scope, load.buffer, one, load.dtype) for one in own],
            adds=not self.is_single,
            pairs=self.pairs,
        )

    def _own_tile(self, row: Register, offset: Register, steps: Range) -> None:
        """A tile at a row of the block, and at columns `offset` from its first one."""
        scope, b, tiling = self.scope, self.scope.b, self.tiling
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
            pointer = self.place(self.block, (row + number) * tiling.columns + offset)
            if not self.is_single:
                total = self.load(kind, pointer) + total
            self.store(total, pointer)

    def _ahead(
        self, steps: Range, columns: Range, tiles: Register
    ) -> tuple[Register, Register, Register] | None:
        """The first column and the first step of the panel that is packed next: below this one, or
        at the top of the columns behind it; behind the last, the first again. And the part of it
        that is one tile's. None where there is no other.
        """
        scope, b, wide = self.scope, self.scope.b, self.tiling.columns
        if self.is_only_one:
            return None
        extents = (self.product.columns.extent, self.depth)
        count, depth = (indexing.scalar(scope, extent) for extent in extents)
        zero = scope.integer(0)
        goes_on = b.compare("lt", steps.stop, depth)
        behind = columns.start + wide
        behind = b.select(b.compare("lt", behind, count), behind, zero)
        column, step = b.select(goes_on, columns.start, behind), b.select(goes_on, steps.stop, zero)
        runs = wide if self._runs_along_depth else self.tiling.depth
        return column, step, b.binary("udiv", tiles + (runs - 1), tiles)

    @property
    def _runs_along_depth(self) -> bool:
        return load_of(self.product.right).index.stride(self.product.depth) == 1

    def _prefetch(self, column: Register, step: Register, share: Register, tile: Register) -> None:
        """Have a share of the panel that begins at a column and a step brought into the caches,
        while the tile of that number is computed: a weight that was not used lately comes from
        memory, and packing would wait for it. Addresses past the operand's end do no harm.
        """
        scope, b, tiling = self.scope, self.scope.b, self.tiling
        load = load_of(self.product.right)
        runs, length = tiling.depth, tiling.columns
        symbols = (AHEAD_STEP, AHEAD_COLUMN)
        first, other = step, column
        if self._runs_along_depth:
            runs, length = length, runs
            symbols = (AHEAD_COLUMN, AHEAD_STEP)
            first, other = column, step
        index = load.index.substitute(
            {self.product.columns: AHEAD_COLUMN.index, self.product.depth: AHEAD_STEP.index}
        )
        start = first + tile * share
        stop = b.intrinsic("smin", start + share, first + runs)
        with scope.loop(symbols, start, stop, 1, runs=False):
            scope.symbols[symbols[1]] = other
            pointer = indexing.address(scope, load.buffer, index, load.dtype)
            memory.prefetch(b, pointer, 0, length * load.dtype.bytes)

    def row(self, first: Register, number: int) -> Register:
        """A row of a tile, or the last row there is."""
        assert self.product.rows is not None
        count = self.product.rows.extent
        is_whole = known_multiple(count, self.tiling.rows)
        return self.clamped(first, number, count, is_whole=is_whole)

    def clamped(self, first: Register, number: int, count: Index, *, is_whole: bool) -> Register:
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
        return self.load(kind, self.place(self.panel, step * self.tiling.columns))

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

    # -- panels -------------------------------------------------------------------------------

    def _pack(self, steps: Range, columns: Range) -> None:
        """Fill the panel with the right operand at these steps of the depth."""
        scope, lanes = self.scope, self.tiling.lanes
        end = columns.start + self.tiling.columns
        if not is_turned(self.product):
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
                    self.store(zeros, self.place(self.panel, row + first))
            self._pack_elements(steps, Range(whole, columns.stop), steps, columns)

    def _pack_elements(self, own: Range, part: Range, steps: Range, columns: Range) -> None:
        """The columns `part` at the steps `own` of a panel, one element after the other."""
        scope = self.scope
        with scope.loop((self.product.columns,), part.start, part.stop, 1, runs=False) as column:
            offset = column - columns.start
            with self._depth(own.start, own.stop) as step:
                value = evaluate(scope, self.product.right)
                place = (step - steps.start) * self.tiling.columns + offset
                pointer = self.place(self.panel, place)
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
        self.store(value, self.place(self.panel, place))

    def _pack_turned(self, start: Register, stop: Register, offset: Register) -> None:
        """The lanes being written, of an operand that is contiguous along the depth: by squares
        that are transposed in registers.
        """
        scope, b, lanes = self.scope, self.scope.b, self.tiling.lanes
        load = load_of(self.product.right)
        kind = VectorType(MEMORY[load.dtype], lanes)
        corner = LoopSymbol("corner", self.depth)
        step = load.index.stride(self.product.columns)
        assert step is not None
        with scope.loop((corner,), start, stop, lanes, runs=False) as first:
            index = load.index.substitute({self.product.depth: corner.index})
            source = indexing.address(scope, load.buffer, index, load.dtype)
            apart = indexing.scalar(scope, step), scope.integer(lanes)
            call_transpose(b, source, apart[0], self.square, apart[1], kind)
            with self._depth(first, first + lanes) as current:
                scope.tiles[id(load)] = b.emit(
                    POINTER,
                    f"getelementptr {kind}, ptr {self.square.text}, i64 {(current - first).text}",
                )
                self._pack_vector(current - start, offset)
                scope.tiles.clear()

    def _depth(self, start: Register, stop: Register) -> AbstractContextManager[Register]:
        return self.scope.loop((self.product.depth,), start, stop, 1, runs=False)

    # -- memory -------------------------------------------------------------------------------

    def place(self, base: Register, index: Register) -> Register:
        """Pointer to an element of the function's own memory."""
        return self.scope.b.emit(
            POINTER, f"getelementptr {self.element}, ptr {base.text}, i64 {index.text}"
        )

    def _alignment(self) -> int:
        return self.tiling.lanes * self.product.dtype.bytes

    def load(self, kind: VectorType, pointer: Register) -> Register:
        text = f"load {kind}, ptr {pointer.text}, align {self._alignment()}"
        return self.scope.b.emit(kind, text)

    def store(self, value: Register, pointer: Register) -> None:
        self.scope.b.line(
            f"store {value.type} {value.text}, ptr {pointer.text}, align {self._alignment()}"
        )


def is_turned(product: MatrixProduct) -> bool:
    """Whether a right operand is packed by squares that are transposed: its elements lie together
    along the depth.
    """
    index = load_of(product.right).index
    return index.stride(product.columns) != 1 and index.stride(product.depth) == 1


def _is_at_most(extent: Index, most: int) -> bool:
    return extent.upper is not None and extent.upper <= most
