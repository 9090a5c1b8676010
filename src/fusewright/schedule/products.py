"""Matrix products as loops, where the device's kernels multiply faster than its library does.

Before:
```
t: f32[256,3072] = extern aten.addmm.default(bias, x, w as f32[768,3072]:[1,768])
```
After:
```
t_product: f32[256,3072] = reduce dot [i0<256, i1<3072] over [r0<768]
  yield x[768*i0 + r0] * w[768*i1 + r0]
t: f32[256,3072] = pointwise [i0<256, i1<3072]
  yield bias[i1] + t_product[3072*i0 + i1]
```
Bias, activation and residual then fuse with the product, as they do with any reduction. `Limits`
says which products are worth it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from fusewright.ir.index import Index, LoopSymbol, integer, known_multiple
from fusewright.ir.limits import ProductSizes, aligned_elements
from fusewright.ir.products import DOT
from fusewright.ir.program import (
    Buffer,
    BufferReference,
    CallOperator,
    ComputedBuffer,
    Layout,
    Operand,
    Pointwise,
    Program,
    Reduction,
    Statement,
    ViewReference,
)
from fusewright.ir.value import Value
from fusewright.records import record, replace
from fusewright.schedule.analysis import Analysis

Position = tuple[Index, ...]
Factor = Callable[[Position, Index], Value]
"""Gives an operand's element, for a position of the product and one along the loop that is summed
over.
"""


@record
class Matrix:
    """An operand: a buffer's memory as a matrix, or a batch of them."""

    buffer: str
    layout: Layout

    def load(self, analysis: Analysis, position: Position) -> Value:
        """The element at a position, in the type that is computed in. A dimension of one element
        is repeated, and so are those that are missing in front.
        """
        layout = self.layout
        own = position[len(position) - len(layout.size) :]
        place = tuple(
            integer(0) if size == 1 else index for size, index in zip(layout.size, own, strict=True)
        )
        make = analysis.expressions
        loaded = make.load(self.buffer, layout.index(place), layout.dtype)
        return make.cast(loaded, layout.dtype.compute)

    @property
    def has_aligned_rows(self) -> bool:
        """Whether its rows, or its columns, are contiguous and begin at aligned addresses."""
        layout = self.layout
        *outer, rows, columns = layout.stride
        unit = aligned_elements(layout.dtype)
        between = (layout.offset, *outer, rows if columns == 1 else columns)
        return 1 in (rows, columns) and all(known_multiple(step, unit) for step in between)


@record
class ProductCall:
    """A product as the library is called for it."""

    left: Matrix
    right: Matrix
    bias: Matrix | None

    @property
    def lies_along_depth(self) -> bool:
        """Whether both operands are contiguous along the loop that is summed over."""
        return self.left.layout.stride[-1] == 1 and self.right.layout.stride[-2] == 1

    @property
    def depth(self) -> Index:
        """The extent of that loop."""
        return self.left.layout.size[-1]

    def sizes(self, output: Buffer, analysis: Analysis) -> ProductSizes | None:
        """The sizes of the product; None where it has no elements."""
        sizes = product_sizes(output, output.layout.size, self.depth, analysis)
        columns, unit = output.layout.size[-1], aligned_elements(output.layout.dtype)
        return sizes and replace(
            sizes,
            lies_along_depth=self.lies_along_depth,
            has_aligned_operands=self.left.has_aligned_rows and self.right.has_aligned_rows,
            is_uneven=columns.is_constant and columns.constant % unit != 0,
        )


def _without_bias(arguments: tuple[Operand, ...], analysis: Analysis) -> ProductCall | None:
    left, right = (matrix_of(argument, analysis) for argument in arguments)
    return None if left is None or right is None else ProductCall(left, right, None)


def _with_bias(arguments: tuple[Operand, ...], analysis: Analysis) -> ProductCall | None:
    bias, left, right = (matrix_of(argument, analysis) for argument in arguments)
    return None if left is None or right is None or bias is None else ProductCall(left, right, bias)


OPERATORS: Final[Mapping[str, Callable[[tuple[Operand, ...], Analysis], ProductCall | None]]] = {
    "aten.mm.default": _without_bias,
    "aten.bmm.default": _without_bias,
    "aten.addmm.default": _with_bias,
    "aten.baddbmm.default": _with_bias,
}
"""Products of matrices, by operator; with factors (`alpha`, `beta`) it stays a call."""


def library_product(statement: Statement, analysis: Analysis) -> ProductCall | None:
    """The product of matrices that a statement calls the library for, if it does."""
    if not isinstance(statement, CallOperator) or statement.keywords:
        return None
    read = OPERATORS.get(statement.operator)
    return None if read is None else read(statement.arguments, analysis)


def products_as_loops(program: Program, analysis: Analysis) -> Program:
    """Write the products out that the kernels of their device are worth it for."""
    return with_loops(program, lambda statement: _loops_of(statement, analysis))


def with_loops(program: Program, write_out: Callable[[Statement], Sequence[Statement]]) -> Program:
    """`program` with loops in place of the statements that `write_out` gives any for; these come
    from where those do.
    """
    statements: list[Statement] = []
    origins = dict(program.origins)
    for statement in program.statements:
        loops = write_out(statement)
        statements.extend(loops or (statement,))
        for part in loops:
            origins.setdefault(part.outputs[0].name, origins.get(statement.outputs[0].name, ()))
    if len(statements) == len(program.statements) and all(
        new is other for new, other in zip(statements, program.statements, strict=True)
    ):
        return program
    return replace(program, statements=tuple(statements), origins=origins)


def _loops_of(statement: Statement, analysis: Analysis) -> tuple[ComputedBuffer, ...]:
    """The product, and the sum with its bias or the rounding to a half type; nothing where the
    call stays.
    """
    call = library_product(statement, analysis)
    if call is None or not _is_for_kernels(call, statement.outputs[0]):
        return ()
    (output,) = statement.outputs
    sizes = call.sizes(output, analysis)
    limits = analysis.limits_of(output.layout.device)
    if sizes is None or not limits.multiplies(sizes):
        return ()
    bias = None if call.bias is None else partial(call.bias.load, analysis)
    form = limits.product_form(sizes)
    body = _product(call, output.layout.size, analysis)
    if form.is_sum:
        body = replace(body, kind="sum")
    loops = gathered(output, body, bias, analysis)
    if form.computes_operands:
        analysis.products_that_compute.add(loops[0].outputs[0].name)
    if not form.has_followers:
        analysis.stored_products.add(output.name)
    return loops


def gathered(
    output: Buffer,
    body: Reduction,
    bias: Callable[[Position], Value] | None,
    analysis: Analysis,
) -> tuple[ComputedBuffer, ...]:
    """Statements that fill `output` with what `body` gathers: that, and its sum with a bias, given
    a position, or its rounding to a half type.
    """
    dtype = output.layout.dtype
    if bias is None and dtype.compute is dtype:
        return (ComputedBuffer(outputs=(output,), body=body),)
    size = output.layout.size
    between = buffer_between(f"{output.name}_product", size, output, analysis)
    loops = loops_of(size, "i")
    position = tuple(symbol.index for symbol in loops)
    make = analysis.expressions
    value = analysis.load(between, position)
    if bias is not None:
        value = make.apply("add", value, bias(position))
    return (
        ComputedBuffer(outputs=(between,), body=body),
        ComputedBuffer(
            outputs=(output,), body=Pointwise(loops=loops, value=make.cast(value, dtype))
        ),
    )


def _is_for_kernels(call: ProductCall, output: Buffer) -> bool:
    """Whether operands and result are of one type, and neither the rows nor the columns are all the
    same memory, as kernels have it.
    """
    operands = [call.left, call.right, *(() if call.bias is None else (call.bias,))]
    if any(operand.layout.dtype is not output.layout.dtype for operand in operands):
        return False
    sides = ((call.left.layout, -2), (call.right.layout, -1))
    return all(layout.size[side] == 1 or layout.stride[side] != 0 for layout, side in sides)


def multiplies_faster(
    output: Buffer, size: Sequence[Index], depth: Index, analysis: Analysis
) -> bool:
    """Whether the kernels of a device multiply matrices faster than its library, where the product
    is of type and device of `output` and of this `size`: batches, rows and columns.
    """
    sizes = product_sizes(output, size, depth, analysis)
    limits = analysis.limits_of(output.layout.device)
    return sizes is not None and limits.multiplies(sizes)


def product_sizes(
    output: Buffer, size: Sequence[Index], depth: Index, analysis: Analysis
) -> ProductSizes | None:
    """The sizes of a product as limits ask for them; None where it has no elements."""
    if any(extent == 0 for extent in (*size, depth)):
        return None
    *batches, rows, columns = size
    return ProductSizes(
        dtype=output.layout.dtype,
        batches=analysis.points(batches),
        rows=analysis.hint(rows),
        columns=analysis.hint(columns),
        depth=analysis.hint(depth),
    )


def _product(call: ProductCall, size: tuple[Index, ...], analysis: Analysis) -> Reduction:
    return matrix_product(
        size,
        call.left.layout.size[-1],
        lambda at, r: call.left.load(analysis, (*at[:-1], r)),
        lambda at, r: call.right.load(analysis, (*at[:-2], r, at[-1])),
        analysis,
    )


def matrix_product(
    size: tuple[Index, ...], depth: Index, left: Factor, right: Factor, analysis: Analysis
) -> Reduction:
    """The product, of this size, of two matrices or batches of them, summed over `depth`."""
    loops = loops_of(size, "i")
    (inner,) = loops_of((depth,), "r")
    at = tuple(symbol.index for symbol in loops)
    factors = left(at, inner.index), right(at, inner.index)
    value = analysis.expressions.apply("mul", *factors)
    return Reduction(loops=loops, reduction_loops=(inner,), kind=DOT, value=value)


def loops_of(size: tuple[Index, ...], prefix: str) -> tuple[LoopSymbol, ...]:
    """Loops of these extents, named i0, i1, … or r0, r1, …"""
    return tuple(LoopSymbol(f"{prefix}{number}", extent) for number, extent in enumerate(size))


def buffer_between(
    name: str, size: tuple[Index, ...], output: Buffer, analysis: Analysis
) -> Buffer:
    """A new buffer, of the type that `output` is computed in, for what it is made from."""
    like = replace(output.layout, dtype=output.layout.dtype.compute)
    return analysis.new_buffer(name, like, size)


def matrix_of(operand: Operand, analysis: Analysis) -> Matrix | None:
    """The memory that an operand is; None for one that is no tensor, or is of another type."""
    match operand:
        case BufferReference(name=name):
            return Matrix(name, analysis.buffers[name].layout)
        case ViewReference(name=name, layout=layout):
            same = analysis.buffers[name].layout.dtype is layout.dtype
            return Matrix(name, layout) if same else None
    return None
