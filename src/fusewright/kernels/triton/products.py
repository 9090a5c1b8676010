"""Matrix products: a program computes a tile of results, and what follows from them.

```
@triton.jit
def kernel(in0, in1, in2, out0, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    …                                            which tile: rows in groups, for the second cache
    m0 = tl.zeros([YBLOCK, XBLOCK], tl.float32)
    for start in range(0, 768, RBLOCK):
        r = start + tl.arange(0, RBLOCK)[None, :]
        down = start + tl.arange(0, RBLOCK)[:, None]
        left = tl.load(in0 + 768*y + r)
        right = tl.load(in1 + 768*x + down)
        m0 = tl.dot(left, right, m0, input_precision="ieee")
    t0 = tl.load(in2 + x)                        the epilogue: bias, activation, …
    t1 = m0 + t0
    tl.store(out0 + 3072*y + x, t1)
```
Elements of a half type are multiplied as they are, and added up in float32. An operand that is no
load is computed where it would be loaded, for each tile anew; what does not vary with the depth,
ahead of the loop. Programs that follow each other share rows of a group and columns, which is the
order of P. Tillet's tutorial on matrix multiplication in Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.group import Group
from fusewright.ir.index import Index, LoopSymbol, Symbol, integer
from fusewright.ir.limits import HALF_TYPES, PLAIN_PRODUCT, ProductForm, ProductSizes
from fusewright.ir.products import MatrixProduct, matrix_product
from fusewright.ir.value import Expressions, Load, Value, postorder
from fusewright.kernels.analysis import extent_hint
from fusewright.kernels.triton.emit import KernelWriter
from fusewright.kernels.triton.tiling import (
    BUSY_PROGRAMS,
    Configuration,
    TileAxis,
    Tiling,
    flatten,
    is_wide,
)
from fusewright.records import record, replace

PRODUCT_TYPES: Final = frozenset({DType.F32, DType.F16, DType.BF16})
"""Types of operands for which there are instructions."""

SUM: Final = ProductForm(is_sum=True)
ALONE: Final = ProductForm(has_followers=False)

PRODUCT_FORMS: Final = (
    PLAIN_PRODUCT,
    ProductForm(computes_operands=True),
    ALONE,
    SUM,
)
"""What a product's kernel may do beside: trials tell."""

LARGE_PRODUCT: Final = 1 << 29
"""Multiplications of a product from which on it matters to the library how rows are aligned: some
10 us are to be gained of 20.
"""


LEAST_ROWS: Final = 64
"""Rows of a result from which on it is more work to multiply than to read the weight."""


def is_sum_by_rule(product: ProductSizes) -> bool:
    """Whether a product is a sum like any other where nothing is tuned: it is of one row of a half
    type, and each row of the other operand lies in one piece, so that it takes as long as memory
    takes to give that operand. What follows fuses with it, and so do other such sums of the row.
    On an H200, [1, 1024] by [1024, 1024] takes 2.2 us, the library 7.2; by [1024, 32000] 17.8, and
    19.5.
    """
    return product.is_of_a_vector and product.lies_along_depth and product.dtype in HALF_TYPES


def is_large_half(product: ProductSizes) -> bool:
    """Whether a product of half types is large enough that the library should find all aligned."""
    operations = product.batches * product.rows * product.columns * product.depth
    return product.dtype in HALF_TYPES and operations >= LARGE_PRODUCT


def multiplies_by_rule(product: ProductSizes) -> bool:
    """Whether kernels compute a product where nothing is tuned: sums of one row, and those whose
    result has rows that are not aligned, though those of the operands are. On an H200, the logits
    of GPT-2, [2048, 768] by [768, 50257], take the library 1681 us, and 341 by a kernel; with 7
    columns more, they take the library 226, and copies of weight and result 290.
    """
    if is_sum_by_rule(product):
        return True
    if not product.is_uneven or product.rows < LEAST_ROWS or not is_large_half(product):
        return False
    return product.lies_along_depth and product.has_aligned_operands


def form_by_rule(product: ProductSizes) -> ProductForm:
    """How kernels compute a product, where they do: the one in place of the library's stores what
    that would, since its sums are twice as large until they are rounded.
    """
    return SUM if is_sum_by_rule(product) else ALONE


def wants_aligned_rows(product: ProductSizes) -> bool:
    """Whether the library is much faster where operands are aligned: the gradient of those logits'
    input takes 212 us in place of 1133 then, that of the weight 336 in place of 1102.
    """
    return is_large_half(product) and not product.is_uneven and not product.is_of_a_vector


LEAST: Final = 16
"""The smallest block that a product of blocks has along any axis."""

GROUP: Final = 8
"""Rows of tiles that programs go through together, so that what they read stays in the cache."""

ProductTile = tuple[int, int, int, int, int]
"""Rows, columns, depth, warps, stages."""

RULED_TILES: Final[tuple[ProductTile, ...]] = (
    (128, 128, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 4, 4),
)
"""Tiles of half types among which a rule chooses, the largest first: of 64 KiB of shared memory at
most, which any GPU has.
"""

HALF_TILES: Final[tuple[ProductTile, ...]] = (
    *((128, 128, 32, 4, 4), (128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 64, 64, 4, 4)),
    *((64, 128, 64, 4, 4), (64, 64, 64, 4, 4), (64, 256, 32, 4, 4), (32, 128, 64, 4, 4)),
    *((32, 64, 128, 4, 4), (16, 64, 128, 2, 5), (16, 128, 128, 4, 4), (16, 32, 256, 2, 4)),
)
"""Tiles of half types that tuning tries."""

FLOAT_TILES: Final[tuple[ProductTile, ...]] = (
    *((64, 64, 16, 4, 3), (128, 64, 16, 8, 3), (64, 128, 16, 8, 3), (128, 128, 16, 8, 3)),
    *((64, 64, 32, 4, 3), (32, 64, 32, 4, 4), (32, 32, 32, 2, 4), (16, 64, 64, 2, 4)),
    *((16, 32, 64, 2, 4), (16, 128, 32, 4, 4)),
)
"""The same of float32, which is multiplied without tensor cores, exactly as eager does."""

ROUNDED_TILES: Final[tuple[ProductTile, ...]] = (
    *((128, 128, 32, 8, 3), (64, 128, 32, 4, 3), (128, 64, 32, 4, 3), (64, 64, 32, 4, 4)),
    *((128, 256, 32, 8, 3), (32, 64, 64, 4, 4), (16, 64, 64, 2, 4), (16, 128, 64, 4, 4)),
)
"""The same of float32 where the program allows its factors to be rounded to TF32, as the library
does then (`torch.backends.cuda.matmul.allow_tf32`).
"""


def product_of(group: Group) -> MatrixProduct | None:
    """The product that a group is, where there are instructions for it."""
    product = matrix_product(group)
    if product is None or product.dtype is not DType.F32:
        return None
    left, right = product.factors
    return product if left.dtype is right.dtype and left.dtype in PRODUCT_TYPES else None


def product_configurations(
    group: Group, product: MatrixProduct, rounds: bool = False
) -> Iterator[Configuration]:
    """The configurations of a product: first the one that is taken without tuning. `rounds`:
    factors may be rounded to TF32.
    """
    is_half = product.factors[0].dtype is not DType.F32
    rounds = rounds and not is_half
    tiles = HALF_TILES if is_half else ROUNDED_TILES if rounds else FLOAT_TILES
    if is_half:
        tiles = (_tile_by_rule(product), *tiles)
    for rows, columns, depth, warps, stages in tiles:
        sides = (
            _block(product.rows, rows),
            _block(product.columns, columns),
            _block(product.depth, depth),
        )
        tiling = _tiling(group, product, sides)
        yield Configuration(tiling=tiling, warps=warps, stages=stages, rounds=rounds)


def _tile_by_rule(product: MatrixProduct) -> ProductTile:
    """The largest of some tiles of half types of which a product has enough to keep the GPU busy,
    or else the smallest.
    """
    batches = prod(map(extent_hint, product.batches))
    columns = extent_hint(product.columns)
    rows = 1 if product.rows is None else extent_hint(product.rows)

    def programs(tile: ProductTile) -> int:
        return batches * -(-rows // tile[0]) * -(-columns // tile[1])

    return next((t for t in RULED_TILES if programs(t) >= BUSY_PROGRAMS), RULED_TILES[-1])


def _block(symbol: LoopSymbol | None, wanted: int) -> int:
    """A block of the size that is wanted, or of what there is."""
    extent = integer(1) if symbol is None else symbol.extent
    if not extent.is_constant:
        return wanted
    return max(LEAST, min(wanted, 1 << (int(extent) - 1).bit_length()))


def _tiling(group: Group, product: MatrixProduct, sides: tuple[int, int, int]) -> Tiling:
    """Axes for rows, columns and depth; one program does one of the batches."""
    y = LoopSymbol("y", integer(1) if product.rows is None else product.rows.extent)
    x, r = LoopSymbol("x", product.columns.extent), LoopSymbol("r", product.depth.extent)
    loops: dict[Symbol, Index] = {product.columns: x.index}
    if product.rows is not None:
        loops[product.rows] = y.index
    batch = None
    if product.batches:
        batch, inside = flatten(product.batches, "batch")
        loops |= inside
    rows, columns, depth = sides
    return Tiling(
        outer=(TileAxis(y, rows, 0), TileAxis(x, columns, 1)),
        inner=(TileAxis(r, depth, 1), *(None for _ in product.epilogue)),
        loops=({**loops, product.depth: r.index}, *(loops for _ in product.epilogue)),
        persistent=False,
        wide=is_wide(group),
        batch=batch,
    )


@record(eq=False)
class ProductOperand:
    """An operand of a product, over the axes of tiles."""

    name: str
    factor: Value
    """What is multiplied."""

    axes: tuple[TileAxis, TileAxis]
    """Those along which its block lies."""

    @property
    def is_loaded(self) -> bool:
        return isinstance(self.factor, Load)


class TritonProductWriter(KernelWriter):
    """Writes a product, and its epilogue as the stages of any group."""

    def __init__(self, group: Group, product: MatrixProduct, configuration: Configuration) -> None:
        tiling = configuration.tiling
        self.precision = "tf32" if configuration.rounds else "ieee"
        self.product = product
        epilogue = replace(group, stages=product.epilogue)
        super().__init__(epilogue, replace(tiling, inner=tiling.inner[1:], loops=tiling.loops[1:]))
        depth = tiling.inner[0]
        assert depth is not None
        self.depth = depth
        self.down = TileAxis(LoopSymbol("down", depth.extent), depth.block, 0, like=depth.name)
        """The depth along the first dimension of a block, where the right operand has it."""

        self.values.axes |= {axis.symbol: axis for axis in (self.depth, self.down)}
        self.operands = self._operands(tiling.loops[0])

    def _operands(self, loops: Mapping[Symbol, Index]) -> tuple[ProductOperand, ProductOperand]:
        """The operands, whose loop variables these are in terms of the axes."""
        y, x = self.tiling.outer
        make = Expressions()
        down: dict[Symbol, Index] = {self.depth.symbol: self.down.symbol.index}
        left, right = (make.substitute(factor, loops) for factor in self.product.factors)
        right = make.substitute(right, down)
        return ProductOperand("left", left, (y, self.depth)), ProductOperand(
            "right", right, (self.down, x)
        )

    def roots(self) -> tuple[Value, ...]:
        return (*(operand.factor for operand in self.operands), *super().roots())

    def write_stages(self) -> None:
        """The product, then the stages behind it."""
        self.multiply()
        self.values.locals[self.product.result, integer(0)] = self.product.result
        super().write_stages()

    def offsets(self) -> None:
        """The variables of the tile that a program computes, and their masks."""
        y, x = self.tiling.outer
        self.body.add(f"program = tl.program_id(0){'.to(tl.int64)' if self.tiling.wide else ''}")
        for name, axis in (("rows", y), ("columns", x)):
            count = f"tl.cdiv({self.values.index(axis.extent)}, {axis.block_name})"
            self.body.add(f"{name} = {count}")
        if self.tiling.batch is not None:
            self.body.add("batch = program // (rows * columns)")
            self.body.add("program = program % (rows * columns)")
        self.body.add(f"first = program // ({GROUP} * columns) * {GROUP}")
        self.body.add(f"height = tl.minimum(rows - first, {GROUP})")
        self.body.add(f"inside = program % ({GROUP} * columns)")
        self.begin(y, "(first + inside % height)")
        self.begin(x, "(inside // height)")

    def multiply(self) -> None:
        """The results of a tile."""
        y, x = self.tiling.outer
        r = self.depth
        result, extent = self.product.result, self.values.index(r.extent)
        along = self.ahead_of_loop()
        self.body.add(f"{result} = tl.zeros([{y.block_name}, {x.block_name}], tl.float32)")
        self.body.add(f"for start in range(0, {extent}, {r.block_name}):")
        self.body.depth += 1
        for axis in (self.depth, self.down):
            self.offset(axis, "start")
        self.values.write(along)
        for operand in self.operands:
            if operand.is_loaded:
                self.load(operand)
            else:
                self.compute(operand)
        precision = f'input_precision="{self.precision}"'
        self.body.add(f"{result} = tl.dot(left, right, {result}, {precision})")
        self.body.depth -= 1
        self.values.forget(along)

    def ahead_of_loop(self) -> Sequence[Value]:
        """Write what operands are computed from and does not vary with the depth; returns the rest,
        in order.
        """
        order = list(postorder(tuple(o.factor for o in self.operands if not o.is_loaded)))
        inside = {self.depth, self.down}
        along = [value for value in order if inside & self.values.axes_of(value)]
        self.values.write(value for value in order if not inside & self.values.axes_of(value))
        return along

    def compute(self, operand: ProductOperand) -> None:
        """A block of an operand from values that are written; past the end of the depth it is
        zero, since what is computed of nothing need not be.
        """
        text = self.values.typed(operand.factor)
        if self.values.axes_of(operand.factor) != {*operand.axes}:
            text = f"tl.broadcast_to({text}, {self.values.shape(operand.axes)})"
        (depth,) = {*operand.axes} & {self.depth, self.down}
        self.body.add(f"{operand.name} = {self.masked(text, depth, '0.0')}")

    def load(self, operand: ProductOperand) -> None:
        """Load a block of an operand; past the end it is zero."""
        load = operand.factor
        assert isinstance(load, Load)
        free = load.index.free()
        address = self.values.address(load.buffer, load.index)
        if any(axis.symbol not in free for axis in operand.axes):
            address += f" + tl.zeros({self.values.shape(operand.axes)}, tl.int32)"
        mask = " & ".join(f"{axis.name}mask" for axis in operand.axes if axis.is_masked)
        self.body.add(
            f"{operand.name} = tl.load({address}{f', {mask}, other=0.0' if mask else ''})"
        )
