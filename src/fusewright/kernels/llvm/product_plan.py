"""Cutting a matrix product into tiles of registers, panels and units of work."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, integer
from fusewright.ir.products import MatrixProduct, load_of
from fusewright.kernels import analysis
from fusewright.kernels.analysis import Dependences, Traits
from fusewright.kernels.llvm.plan import InnerPlan, KernelPlan, product_of_extents
from fusewright.records import record, replace
from fusewright.runtime.llvm_engine import CpuTarget

PRODUCT_TYPES = frozenset({DType.F32, DType.F16, DType.BF16})
"""Types of products that there are kernels for."""

DEPTH = 96
"""Steps of the depth between additions to the results in memory."""

BLOCK_ROWS = 256
"""Rows for which a panel is packed once, at most."""

SHORT_BLOCK_ROWS = 96
"""Rows for which it is packed once, where there would be few units of work."""

FEW_UNITS = 32
"""Units of work below which threads may be left without one, or do a much larger part than others.
"""

LEAST_FILLED = 0.85
"""Part of the columns of panels that exist, below which narrower panels are taken."""

SERIAL_PRODUCTS = 32_768
"""Multiplications of registers that one thread does, in about 5 µs, before another is woken."""

COSTLY = 8
"""Cost of an epilogue that is written for one register at a time."""


class Form(Enum):
    """The way in which a product is computed."""

    PACKED = "packed"
    """By vectors of columns, of a right operand that is copied into panels."""

    IN_PLACE = "in place"
    """By vectors of columns, of a right operand that is read where it lies, each row of it as often
    as there are tiles of rows.
    """

    ALONG_DEPTH = "along the depth"
    """By vectors of steps of the depth, along which both operands are contiguous."""


@record(kw_only=True)
class ProductTiling:
    """The sizes by which a product is cut."""

    rows: int
    """Rows of a tile in registers."""

    columns: int
    """Columns of a tile, and of a panel."""

    lanes: int
    """Elements of one register."""

    block: int
    """Rows of a unit of work, a multiple of `rows`."""

    depth: int
    """Steps of the depth between additions to the results in memory, for which a panel is packed.
    """

    form: Form
    few: Form | None
    """The form for calls with few rows, where that is not known before."""

    across: int
    """Columns of a tile whose vectors run along the depth."""

    plan: KernelPlan
    """Units of work, and how the epilogue is written."""

    pairs: bool = False
    """Whether vectors along the depth hold bfloat16, pairs of which one instruction multiplies."""


TILES = {64: (6, 4), 32: (6, 2), 16: (6, 4)}
"""Rows and registers across of a tile of columns, by bytes of a register: of 16 registers (32 with
AVX-512 and NEON) a tile takes most, and leaves room for a row of the panel and an element of the
left operand.
"""

DOT_TILES = {64: (8, 8, 8, 4), 32: (8, 4, 4), 16: (8, 8, 8, 4)}
"""Columns of a tile along the depth, for a tile of one row, two rows, … by bytes of a register."""

SYMBOLIC_DOT_TILES = {64: 4, 32: 2, 16: 4}
"""The same, for tiles of as many rows as those of columns have."""

FEW_ROWS = 16
"""Rows up to which a right operand that is contiguous along the depth is not worth packing."""

SOME_ROWS = 16
"""Rows up to which one that is contiguous along the columns is not."""

WIDEST = {1: 4, 2: 2, 3: 2}
"""The factor by which a tile of few rows is wider than usual, by its rows: else each addition waits
for the one before it.
"""


TRIED_TILES = {64: ((6, 4), (12, 2), (14, 2)), 32: ((6, 2), (12, 1)), 16: ((6, 4), (12, 2))}
"""Rows and registers across of the tiles that tuning tries, by bytes of a register. Vectors are of
a power of two elements: LLVM takes others apart.
"""

TRIED_DEPTHS = (192, 384)
TRIED_BLOCKS = (64, 128, 512)


def tilings_to_try(product: MatrixProduct, target: CpuTarget) -> Iterator[ProductTiling]:
    """Cuts of a product that tuning tries, that of `tiling_of` first. One may come twice."""
    first = tiling_of(product, target)
    if first is None:
        return
    yield first
    count = _rows(product)
    if count is None:
        return
    lanes = first.lanes
    if first.form is not Form.PACKED:
        most, across = TILES[target.vector_bytes]
        tile = (_even_rows(count, most), 1)
        yield _with_units(product, (Form.PACKED, None), tile, _panel(product, lanes, across), lanes)
        return
    for most, across in TRIED_TILES[target.vector_bytes]:
        tile = (_even_rows(count, most), 1)
        columns = min(lanes * across, _panel(product, lanes, across))
        yield _with_units(product, (Form.PACKED, None), tile, columns, lanes)
    yield from (replace(first, depth=depth) for depth in TRIED_DEPTHS)
    tile = (first.rows, 1)
    for block in TRIED_BLOCKS:
        if block < count:
            yield _with_units(
                product,
                (Form.PACKED, None),
                tile,
                first.columns,
                lanes,
                _rounded(block, first.rows),
            )


def _even_rows(count: int, most: int) -> int:
    """Rows of a tile, at most as many as that, so that tiles are about equal."""
    return -(-count // -(-count // most))


def tiling_of(product: MatrixProduct, target: CpuTarget) -> ProductTiling | None:
    """The cut of a product for a processor; None where kernels have no vectors."""
    lanes = target.lanes(product.dtype.bits)
    if target.vector_bytes not in TILES or lanes == 1:
        return None
    most, across = TILES[target.vector_bytes]
    dots = DOT_TILES[target.vector_bytes]
    count = _rows(product)
    if count is None:
        form = _form(product, 1)
        few = None if form is Form.PACKED else form
        columns, tile = _panel(product, lanes, across), SYMBOLIC_DOT_TILES[target.vector_bytes]
        tiling = _with_units(product, (Form.PACKED, few), (most, min(tile, lanes)), columns, lanes)
        return replace(tiling, pairs=_multiplies_pairs(product, target))
    form = _form(product, count)
    if form is Form.ALONG_DEPTH:
        most = len(dots)
    rows = _even_rows(count, most)
    if form is Form.IN_PLACE:
        across *= WIDEST.get(rows, 1)
    tile = min(dots[rows - 1], lanes) if form is Form.ALONG_DEPTH else 1
    columns = _panel(product, lanes, across)
    tiling = _with_units(product, (form, None), (rows, tile), columns, lanes)
    return replace(tiling, pairs=_multiplies_pairs(product, target))


def _multiplies_pairs(product: MatrixProduct, target: CpuTarget) -> bool:
    """Whether the processor multiplies pairs of bfloat16, and both operands are that."""
    loads = (load_of(product.left), load_of(product.right))
    return target.multiplies_pairs and all(load.dtype is DType.BF16 for load in loads)


def _rows(product: MatrixProduct) -> int | None:
    """The number of rows of a product; None where that is symbolic."""
    if product.rows is None:
        return 1
    count = product.rows.extent
    return int(count) if count.is_constant else None


def _form(product: MatrixProduct, rows: int) -> Form:
    left, right = load_of(product.left).index, load_of(product.right).index
    if right.stride(product.columns) == 1:
        return Form.IN_PLACE if rows <= SOME_ROWS else Form.PACKED
    contiguous = all(index.stride(product.depth) == 1 for index in (left, right))
    return Form.ALONG_DEPTH if contiguous and rows <= FEW_ROWS else Form.PACKED


def _panel(product: MatrixProduct, lanes: int, across: int) -> int:
    """Columns of a unit of work: as many as registers hold across, or as there are."""
    whole = product.columns.extent
    if not whole.is_constant:
        return lanes * across
    registers = -(-int(whole) // lanes)
    across = min(across, 1 << (registers - 1).bit_length())
    if across > 2 and _rounded(registers, 2) < LEAST_FILLED * _rounded(registers, across):
        across = 2
    return lanes * across


def _with_units(
    product: MatrixProduct,
    forms: tuple[Form, Form | None],
    tile: tuple[int, int],
    columns: int,
    lanes: int,
    block: int = 0,
) -> ProductTiling:
    """The tiling of these forms, with tiles of so many rows (and columns, along the depth).
    `block`: rows of a unit of work; by default as many as leave enough units.
    """
    rows, across = tile
    panels = (product.columns.extent + (columns - 1)) // columns
    outside = product_of_extents(product.batches) * panels
    count = _rows(product) or BLOCK_ROWS
    blocks = -(-count // BLOCK_ROWS)
    while _hint(outside) * blocks < FEW_UNITS and -(-count // (blocks + 1)) >= SHORT_BLOCK_ROWS:
        blocks += 1
    block = block or _rounded(-(-count // blocks), rows)
    whole = integer(1) if product.rows is None else product.rows.extent
    work = block * columns * analysis.extent_hint(product.depth) // lanes
    cost = sum(Traits.of(stage, Dependences()).cost for stage in product.epilogue)
    plan = KernelPlan(
        outer_lane=product.columns,
        lanes=lanes,
        wide=lanes if cost > COSTLY else columns,
        inner=(InnerPlan(None, 1),) * len(product.epilogue),
        points=product.batches,
        block=integer(block),
        blocks=panels,
        units=outside * ((whole + (block - 1)) // block),
        grain=max(1, SERIAL_PRODUCTS // max(work, 1)),
    )
    return ProductTiling(
        rows=rows,
        columns=columns,
        lanes=lanes,
        block=block,
        depth=DEPTH,
        form=forms[0],
        few=forms[1],
        across=across,
        plan=plan,
    )


def _rounded(count: int, step: int) -> int:
    return -(-count // step) * step


def _hint(size: Index) -> int:
    return int(size) if size.is_constant else analysis.ASSUMED_EXTENT
