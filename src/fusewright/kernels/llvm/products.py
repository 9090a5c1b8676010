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
from functools import partial

from fusewright.ir.group import Group
from fusewright.ir.index import Index, LoopSymbol, SizeSymbol, Symbol, known_multiple
from fusewright.ir.products import MatrixProduct, load_of
from fusewright.ir.value import Value
from fusewright.kernels.llvm import indexing, memory
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.emit import GroupWriter, begin_kernel, finish_kernel
from fusewright.kernels.llvm.pairs import paired
from fusewright.kernels.llvm.product_plan import FEW_ROWS, Form, ProductTiling
from fusewright.kernels.llvm.product_tiles import PanelWriter, Range, is_turned
from fusewright.kernels.llvm.scope import Scope
from fusewright.kernels.llvm.shared_tile import MOST_ROWS
from fusewright.kernels.llvm.shared_units import call_unit
from fusewright.kernels.llvm.storage import MEMORY, REGISTER, convert
from fusewright.records import record, replace
from fusewright.runtime.llvm_engine import CpuTarget

UNIT, TILE, ROW_TILE, CHOICE = (SizeSymbol(name) for name in ("unit", "tile", "row_tile", "choice"))
"""The counters of units of work and of tiles; and one that makes a turn where a form is chosen."""


@record(frozen=False, kw_only=True)
class ProductWriter:
    """Writes one product."""

    product: MatrixProduct
    tiling: ProductTiling
    scope: Scope
    writer: GroupWriter
    """Writes the epilogue."""

    panels: PanelWriter
    """Writes units by vectors of columns."""

    column_symbols: tuple[LoopSymbol, ...]
    """The columns of a tile whose vectors run along the depth."""

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
        elif form is Form.IN_PLACE:
            self.panels.write(rows, columns, partial(self._lanes, columns, self.tiling.columns))
        elif not call_unit(self.panels, rows, columns):
            self.panels.write(rows, columns)

    def _lanes(self, columns: Range, wide: int, body: Callable[[Register], None]) -> None:
        """`body` on vectors of columns, given how far they are from the first one."""
        symbol = self.product.columns

        def at_columns() -> None:
            body(self.scope.symbols[symbol] - columns.start)

        loops = self.writer.loops
        loops.lane_loop(symbol, columns.start, columns.stop, wide, at_columns)

    # -- sums along the depth -----------------------------------------------------------------

    def _along_depth(self, rows: Range, columns: Range) -> None:
        """The product, by vectors of steps of the depth, whose lanes are added up at the end."""
        scope, tiling = self.scope, self.tiling
        own = (TILE, *self.column_symbols)
        count = self.product.columns.extent
        with scope.loop(own, columns.start, columns.stop, tiling.across, runs=True) as first:
            for number, symbol in enumerate(self.column_symbols):
                whole = known_multiple(count, tiling.across)
                scope.symbols[symbol] = self.panels.clamped(first, number, count, is_whole=whole)
            if self.product.rows is None:
                self._dot_tile(scope.integer(0), first - columns.start)
                return
            symbols = (ROW_TILE, *self.panels.row_symbols)
            with scope.loop(symbols, rows.start, rows.stop, tiling.rows, runs=True) as row:
                for number, row_symbol in enumerate(self.panels.row_symbols):
                    scope.symbols[row_symbol] = self.panels.row(row, number)
                self._dot_tile(row - rows.start, first - columns.start)

    def _dot_tile(self, row: Register, column: Register) -> None:
        """A tile of results, each a vector of sums, stored at a row and column of the block."""
        scope, b, tiling = self.scope, self.scope.b, self.tiling
        depth, lanes = self.product.depth, tiling.lanes
        kind = VectorType(self.panels.element, lanes)
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
                own = self.panels.row_symbols[number] if self.panels.row_symbols else None
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
            pointer = self.panels.place(self.panels.block, place)
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

    # -- epilogue -----------------------------------------------------------------------------

    def _epilogue(self, rows: Range, columns: Range) -> None:
        """Store what follows from the results of a unit."""
        scope, product = self.scope, self.product

        def at_row(row: Register) -> None:
            self._lanes(columns, self.tiling.plan.wide, lambda offset: at_lanes(row, offset))

        def at_lanes(row: Register, offset: Register) -> None:
            place = (row - rows.start) * self.tiling.columns + offset
            scope.pointers[product.result] = self.panels.place(self.panels.block, place)
            scope.local_lanes = scope.lane_count
            self.writer.write_stages()

        if product.rows is None:
            at_row(rows.start)
            return
        with scope.loop((product.rows,), rows.start, rows.stop, 1, runs=True) as row:
            at_row(row)


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
    rows = (
        ()
        if product.rows is None
        else tuple(LoopSymbol(f"row{number}", product.rows.extent) for number in range(tiling.rows))
    )
    columns = tuple(
        LoopSymbol(f"column{number}", product.columns.extent) for number in range(tiling.across)
    )
    writer = ProductWriter(
        product=product,
        tiling=tiling,
        scope=scope,
        writer=GroupWriter.of(epilogue, tiling.plan, scope),
        panels=_panels(product, tiling, scope, rows),
        column_symbols=columns,
    )
    i64 = VectorType("i64")
    writer.write(Register(scope.b, "%begin", i64), Register(scope.b, "%end", i64))
    return finish_kernel(scope)


def _panels(
    product: MatrixProduct, tiling: ProductTiling, scope: Scope, rows: tuple[LoopSymbol, ...]
) -> PanelWriter:
    """The writer of units, with memory for what it packs."""
    element = REGISTER[product.dtype]
    is_packed = tiling.form is Form.PACKED
    pairs = paired(product) if is_packed and tiling.pairs and tiling.rows <= MOST_ROWS else None
    product = pairs or product
    panel = scope.slot(element, tiling.depth * tiling.columns) if is_packed else scope.nowhere()
    square = scope.nowhere()
    if is_packed and is_turned(product):
        kind = VectorType(MEMORY[load_of(product.right).dtype], tiling.lanes)
        square = scope.slot(str(kind), tiling.lanes)
    return PanelWriter(
        product=product,
        tiling=tiling,
        scope=scope,
        block=scope.slot(element, tiling.block * tiling.columns),
        panel=panel,
        square=square,
        row_symbols=rows,
        pairs=pairs is not None,
    )
