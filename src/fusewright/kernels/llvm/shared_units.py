"""Units of products as functions that kernels share: their strides and sizes are arguments, so that
LLVM compiles one for all products of a graph whose operands lie alike. A kernel of its own is then
what the units are, and what follows from their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, LoopSymbol, SizeSymbol, integer, known_multiple
from fusewright.ir.products import MatrixProduct, load_of
from fusewright.ir.value import Expressions, Load
from fusewright.kernels.analysis import Dependences
from fusewright.kernels.llvm import indexing
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.emit import entry_first
from fusewright.kernels.llvm.mathematics.registry import GENERATORS, Definition
from fusewright.kernels.llvm.plan import KernelPlan
from fusewright.kernels.llvm.product_plan import Form, ProductTiling
from fusewright.kernels.llvm.product_tiles import PanelWriter, Range, is_turned
from fusewright.kernels.llvm.scope import I64, POINTER, Scope
from fusewright.kernels.llvm.shared_tile import MOST_ROWS, PAIRS
from fusewright.records import record
from fusewright.runtime.llvm_engine import CpuTarget

POINTERS: Final = ("block", "panel", "square", "left", "right")
NUMBERS: Final = (
    "left_row", "left_step", "right_step", "rows", "columns", "depth",
    "first_row", "last_row", "first_column", "last_column",
)  # fmt: skip
"""The parameters of a unit: strides of the operands, sizes of the product, and the unit's part.
`right_step` is from one run of the right operand to the next.
"""


@record
class Strides:
    """Elements of an operand from one row, or column, to the next, and from step to step."""

    across: Index
    along: Index
    base: Index
    """The element at the first of both."""


def call_unit(panels: PanelWriter, rows: Range, columns: Range) -> bool:
    """Write the call of the function that computes a unit of packed columns. False where there is
    none: an operand lies otherwise than by strides, or the depth may be nothing.
    """
    scope, product, tiling = panels.scope, panels.product, panels.tiling
    if product.rows is None or not panels.has_depth or tiling.rows > MOST_ROWS:
        return False
    left = _strides(load_of(product.left), product.rows, product.depth)
    right = _strides(load_of(product.right), product.columns, product.depth)
    if left is None or right is None or 1 not in (right.across, right.along):
        return False
    turned = is_turned(product)
    numbers = (
        *(indexing.scalar(scope, stride) for stride in (left.across, left.along)),
        indexing.scalar(scope, right.across if turned else right.along),
        *(indexing.scalar(scope, loop.extent) for loop in (product.rows, product.columns)),
        indexing.scalar(scope, panels.depth),
        *(rows.start, rows.stop, columns.start, columns.stop),
    )
    operands = [
        indexing.address(scope, load.buffer, strides.base, load.dtype)
        for load, strides in ((load_of(product.left), left), (load_of(product.right), right))
    ]
    name = _name(panels, turned)
    scope.b.required.setdefault(name)
    registers = (panels.block, panels.panel, panels.square, *operands, *numbers)
    scope.b.line(f"call void @{name}({', '.join(f'{r.type} {r.text}' for r in registers)})")
    return True


def _strides(load: Load, across: LoopSymbol, along: LoopSymbol) -> Strides | None:
    """The strides of an operand; None where there are none, or they vary."""
    steps = (load.index.stride(across), load.index.stride(along))
    first, second = steps
    if first is None or second is None:
        return None
    if any(isinstance(symbol, LoopSymbol) for step in (first, second) for symbol in step.free()):
        return None
    return Strides(first, second, load.index.substitute({across: integer(0), along: integer(0)}))


def _name(panels: PanelWriter, turned: bool) -> str:
    """The name of a unit's function, in which is all that decides its text."""
    product, tiling = panels.product, panels.tiling
    is_whole = known_multiple(product.columns.extent, tiling.columns)
    parts = (
        "product_unit",
        tiling.rows,
        tiling.lanes,
        tiling.depth,
        "all" if panels.is_only_one else "once" if panels.is_single else "blocks",
        *(dtype.name for dtype in (load_of(product.left).dtype, load_of(product.right).dtype)),
        PAIRS if panels.pairs else product.dtype.name,
        "turned" if turned else "straight",
        tiling.columns if is_whole else 1,
        tiling.lanes if turned and known_multiple(panels.depth, tiling.lanes) else 1,
    )
    kind = VectorType(panels.element, tiling.columns)
    return f"{'-'.join(map(str, parts))}.{kind.suffix}"


def _unit(kind: VectorType, *parts: str) -> Definition:
    """The function of such a name: the unit of a product whose sizes and strides are symbols."""
    rows, lanes, block, blocks, left_type, right_type, computed, form, *multiples = parts
    lane_count, block_steps = int(lanes), int(block)
    dtype = DType.F32 if computed == PAIRS else DType[computed]
    dtypes = DType[left_type], DType[right_type]
    column_multiple, depth_multiple = map(int, multiples)
    known = {
        "columns": SizeSymbol(
            "columns", 1, kind.lanes if blocks == "all" else None, multiple=column_multiple
        ),
        "depth": SizeSymbol(
            "depth", 1, None if blocks == "blocks" else block_steps, multiple=depth_multiple
        ),
    }
    sizes = {name: known.get(name, SizeSymbol(name)) for name in NUMBERS}
    scope = _scope(sizes, CpuTarget(name="", features="", vector_bytes=lane_count * dtype.bytes))
    product = _product(sizes, dtypes, dtype, turned=form == "turned")
    tiling = ProductTiling(
        rows=int(rows),
        columns=kind.lanes,
        lanes=lane_count,
        block=int(rows),
        depth=block_steps,
        form=Form.PACKED,
        few=None,
        across=1,
        plan=KernelPlan(
            outer_lane=product.columns,
            lanes=lane_count,
            wide=kind.lanes,
            inner=(),
            points=(),
            units=integer(1),
            grain=1,
        ),
    )
    assert product.rows is not None
    panels = PanelWriter(
        product=product,
        tiling=tiling,
        scope=scope,
        **{name: Register(scope.b, f"%{name}", POINTER) for name in ("block", "panel", "square")},
        row_symbols=tuple(
            LoopSymbol(f"row{number}", product.rows.extent) for number in range(tiling.rows)
        ),
        pairs=computed == PAIRS,
    )
    first_row, last_row, first_column, last_column = (
        scope.symbols[sizes[name]] for name in NUMBERS[-4:]
    )
    panels.write(Range(first_row, last_row), Range(first_column, last_column))
    parameters = (*(f"ptr %{name}" for name in POINTERS), *(f"i64 %{name}" for name in NUMBERS))
    name = f"{'-'.join(('product_unit', *parts))}.{kind.suffix}"
    head = f"define internal void @{name}({', '.join(parameters)}) nounwind {{"
    lines = [head, "entry:", *entry_first(scope), "  ret void", "}"]
    return Definition("\n".join(lines), tuple(scope.b.required))


def _scope(sizes: Mapping[str, SizeSymbol], target: CpuTarget) -> Scope:
    """The scope of a function whose parameters are the operands and these sizes."""
    builder = IRBuilder(contract=True)
    scope = Scope(b=builder, target=target, dependences=Dependences())
    builder.lines = scope.levels[0].lines
    for name in POINTERS:
        scope.pointers[name] = Register(builder, f"%{name}", POINTER)
    for name, symbol in sizes.items():
        scope.symbols[symbol] = Register(builder, f"%{name}", I64)
    return scope


def _product(
    sizes: Mapping[str, SizeSymbol],
    operands: tuple[DType, DType],
    dtype: DType,
    *,
    turned: bool,
) -> MatrixProduct:
    """A product of `left` and `right`, of rows and columns of any strides."""
    row, column, step = (
        LoopSymbol(name, sizes[extent].index)
        for name, extent in (("row", "rows"), ("column", "columns"), ("step", "depth"))
    )
    stride = sizes["right_step"].index
    places = (
        sizes["left_row"].index * row + sizes["left_step"].index * step,
        stride * column + step if turned else stride * step + column,
    )
    make = Expressions()
    left, right = (
        make.cast(make.load(name, place, own), dtype)
        for name, place, own in zip(POINTERS[-2:], places, operands, strict=True)
    )
    return MatrixProduct(
        left=left,
        right=right,
        dtype=dtype,
        result="",
        rows=row,
        columns=column,
        batches=(),
        depth=step,
        epilogue=(),
    )


GENERATORS["product_unit"] = _unit
