"""Operands of large products by the library lie in whole pieces of memory.

The library is several times as slow where the rows of an operand begin between the pieces that
memory is read in, or where it sums over a part of a piece. A buffer that nobody but kernels and
products of the program sees has room behind its rows; what is left of the depth behind its last
whole piece is a sum of its own, to which the library adds the rest.

Before, with pieces of eight elements:
```
g: bf16[2048, 50257] = pointwise [i0<2048, i1<50257]
  yield exp(x[50257*i0 + i1])
y: bf16[2048, 768] = extern aten.mm.default(g, w)
```
After:
```
g: bf16[2048, 50257] stride [50264, 1] = pointwise [i0<2048, i1<50257]
  yield exp(x[50257*i0 + i1])
y_rest_product: f32[2048, 768] = reduce sum [i0<2048, i1<768] over [r0<1]
  yield g[50264*i0 + r0 + 50256] * w[768*r0 + i1 + 38596608]
y_rest: bf16[2048, 768] = pointwise [i0<2048, i1<768]
  yield y_rest_product[768*i0 + i1]
y: bf16[2048, 768] = extern aten.addmm.default(y_rest, g as [2048, 50256], w as [50256, 768])
```
The rest is rounded before it is added, which changes it by as little as any of its terms weighs in
the whole. `Limits.wants_aligned_rows` says for which products this is worth it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, integer
from fusewright.ir.limits import aligned_elements
from fusewright.ir.program import (
    Body,
    Buffer,
    BufferReference,
    CallOperator,
    ComputedBuffer,
    Layout,
    Operand,
    Pointwise,
    Program,
    Reduction,
    Scan,
    Scatter,
    Statement,
    ViewReference,
)
from fusewright.ir.value import Load, Value
from fusewright.records import record, replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import output_buffers, statement_effects
from fusewright.schedule.invert import compounds
from fusewright.schedule.products import (
    Matrix,
    ProductCall,
    gathered,
    library_product,
    matrix_product,
    with_loops,
)

SHORTEST_ROW = 128
"""Elements of a row at least, of whose memory the room behind is a twentieth at most then, and of
whose sums the rest.
"""


@record
class Padding:
    """Rows of a buffer that is contiguous, of a length, which begin further apart."""

    length: int
    distance: int

    def moved(self, index: Index) -> Index:
        """Where the element comes to lie that was at `index`."""
        return index // self.length * self.distance + index % self.length

    def layout(self, layout: Layout) -> Layout | None:
        """A layout over the moved elements, with the same elements as one over those that were
        contiguous; None: there is none.
        """
        last = layout.offset % self.length
        strides: list[Index] = []
        for size, stride in zip(layout.size, layout.stride, strict=True):
            rows, inside = stride // self.length, stride % self.length
            if inside == 0:
                strides.append(rows * self.distance)
            elif rows == 0 or size == 1:
                strides.append(stride)
                last = last + (size - 1) * inside
            else:
                return None
        if not last.is_constant or last.constant >= self.length:
            return None
        return replace(layout, stride=tuple(strides), offset=self.moved(layout.offset))


def align_operands(program: Program, analysis: Analysis) -> Program:
    """Give room to the rows of each buffer of which a product wants it and nobody sees it; then
    sum up what is left of the depth of each product that is aligned but for that.
    """
    wanted = _wanted(program, analysis)
    refused = _seen_elsewhere(program, wanted, analysis) if wanted else set()
    paddings = {name: padding for name, padding in wanted.items() if name not in refused}
    if paddings:
        statements = tuple(_moved(own, paddings, analysis) for own in program.statements)
        for statement in statements:
            analysis.buffers.update({buffer.name: buffer for buffer in statement.outputs})
        program = replace(program, statements=statements)
    return with_loops(program, lambda statement: _without_rest(statement, analysis))


# Which buffers ------------------------------------------------------------------------------------


def _wanted(program: Program, analysis: Analysis) -> dict[str, Padding]:
    """The room that products want, by buffer."""
    wanted: dict[str, Padding] = {}
    for statement in program.statements:
        call = _large_product(statement, analysis)
        if call is None:
            continue
        for matrix in (call.left, call.right):
            padding = _padding(analysis.buffers[matrix.buffer].layout, matrix.layout)
            if padding is not None:
                wanted.setdefault(matrix.buffer, padding)
    return wanted


def _large_product(statement: Statement, analysis: Analysis) -> ProductCall | None:
    """The product that a statement calls the library for, where that is much faster if it finds
    its operands aligned.
    """
    call = library_product(statement, analysis)
    if call is None:
        return None
    (output,) = statement.outputs
    sizes = call.sizes(output, analysis)
    limits = analysis.limits_of(output.layout.device)
    return call if sizes is not None and limits.wants_aligned_rows(sizes) else None


def _padding(buffer: Layout, matrix: Layout) -> Padding | None:
    """The room that rows of a matrix need, which is the contiguous memory of a buffer; None where
    they begin at multiples of the alignment as they are, or it is no matrix of rows.
    """
    inside, between = matrix.stride[-2:]
    if between == 1:
        inside, between = between, inside
    if not buffer.is_contiguous or inside != 1 or not between.is_constant:
        return None
    length = between.constant
    unit = aligned_elements(buffer.dtype)
    if length < SHORTEST_ROW or length % unit == 0 or between not in buffer.stride:
        return None
    return Padding(length, length + -length % unit)


def _seen_elsewhere(
    program: Program, wanted: Mapping[str, Padding], analysis: Analysis
) -> set[str]:
    """The buffers among these which something is about to see that has to find them as they are."""
    made = {
        buffer.name
        for statement in program.statements
        if isinstance(statement, ComputedBuffer)
        if isinstance(statement.body, Pointwise | Reduction)
        for buffer in statement.outputs
    }
    refused = {name for name in wanted if name not in made} | output_buffers(program)
    refused.update(name for pair in program.mutations for name in pair)
    for statement in program.statements:
        match statement:
            case ComputedBuffer(body=body):
                refused.update(_read_otherwise(body, wanted, analysis))
            case CallOperator() if library_product(statement, analysis) is not None:
                for operand in statement.arguments:
                    match operand:
                        case ViewReference(name=name, layout=layout) if name in wanted:
                            if wanted[name].layout(layout) is None:
                                refused.add(name)
            case _:
                effects = statement_effects(statement)
                refused.update((*effects.reads, *effects.writes, *effects.overwrites))
    return refused


def _read_otherwise(body: Body, wanted: Mapping[str, Padding], analysis: Analysis) -> Iterator[str]:
    """The buffers among these that loops do not read by rows: more divisions would tell where an
    element has come to lie.
    """
    if isinstance(body, Scatter):
        yield body.base
        for root in (*body.indirect, body.value):
            yield from (load.buffer for load in analysis.loads(root))
        return
    for load in analysis.loads(body.value):
        padding = wanted.get(load.buffer)
        if padding and compounds(padding.moved(load.index)) > compounds(load.index):
            yield load.buffer


# The buffers with room ----------------------------------------------------------------------------


def _moved(statement: Statement, paddings: Mapping[str, Padding], analysis: Analysis) -> Statement:
    """A statement that finds and leaves the buffers with their room."""
    match statement:
        case ComputedBuffer(outputs=outputs, body=Pointwise() | Reduction() | Scan() as body):
            make = analysis.expressions

            def load_moved(load: Load) -> Value | None:
                padding = paddings.get(load.buffer)
                if padding is None:
                    return None
                return make.load(load.buffer, padding.moved(load.index), load.dtype)

            if any(load.buffer in paddings for load in analysis.loads(body.value)):
                body = replace(body, value=make.rewrite(body.value, {}, load_moved))
            return replace(statement, outputs=_with_room(outputs, paddings), body=body)
        case CallOperator(outputs=outputs, arguments=arguments):
            return replace(
                statement,
                outputs=_with_room(outputs, paddings),
                arguments=tuple(_operand(argument, paddings) for argument in arguments),
            )
    return statement


def _with_room(buffers: tuple[Buffer, ...], paddings: Mapping[str, Padding]) -> tuple[Buffer, ...]:
    return tuple(
        replace(buffer, layout=_layout(buffer.name, buffer.layout, paddings)) for buffer in buffers
    )


def _operand(operand: Operand, paddings: Mapping[str, Padding]) -> Operand:
    match operand:
        case ViewReference(name=name, layout=layout):
            return replace(operand, layout=_layout(name, layout, paddings))
    return operand


def _layout(name: str, layout: Layout, paddings: Mapping[str, Padding]) -> Layout:
    """A layout over a buffer's memory, once that has its room."""
    padding = paddings.get(name)
    moved = layout if padding is None else padding.layout(layout)
    assert moved is not None, f"a view of {name} was looked at before"
    return moved


# The rest of the depth ----------------------------------------------------------------------------

RESTS: Final = frozenset({DType.BF16})
"""The types of results that the rest alone cannot be too large for while the whole is not."""

WITH_SUMMAND: Final[Mapping[str, tuple[str, str]]] = {
    "aten.mm.default": ("aten.addmm.default", "aten.addmm.out"),
    "aten.bmm.default": ("aten.baddbmm.default", "aten.baddbmm.out"),
}
"""The operators that add a matrix to a product, of new memory and of given one, by that of the
product.
"""


def _without_rest(statement: Statement, analysis: Analysis) -> tuple[Statement, ...]:
    """A product of whole pieces, behind the sum over what is left of the depth; nothing where the
    call stays.
    """
    call = _large_product(statement, analysis)
    if call is None or not isinstance(statement, CallOperator) or not call.depth.is_constant:
        return ()
    (output,) = statement.outputs
    depth = call.depth.constant
    whole = depth - depth % aligned_elements(output.layout.dtype)
    matrices = call.left, call.right
    along = call.left.layout.stride[-1] == 1 or call.right.layout.stride[-2] == 1
    if whole == depth or whole < SHORTEST_ROW or output.layout.dtype not in RESTS:
        return ()
    if not along or statement.operator not in WITH_SUMMAND:
        return ()
    if not all(matrix.has_aligned_rows for matrix in matrices):
        return ()
    size = output.layout.size
    rest = analysis.new_buffer(f"{output.name}_rest", output.layout, size)
    left, right = matrices
    body = matrix_product(
        size,
        integer(depth - whole),
        lambda at, r: left.load(analysis, (*at[:-1], r + whole)),
        lambda at, r: right.load(analysis, (*at[:-2], r + whole, at[-1])),
        analysis,
    )
    operator, out_operator = WITH_SUMMAND[statement.operator]
    arguments = BufferReference(rest.name), _first(left, -1, whole), _first(right, -2, whole)
    product = replace(
        statement,
        operator=operator,
        arguments=arguments,
        out_operator=out_operator if statement.out_operator else "",
    )
    return (*gathered(rest, replace(body, kind="sum"), None, analysis), product)


def _first(matrix: Matrix, dimension: int, count: int) -> ViewReference:
    """The first elements of a matrix along a dimension."""
    size = [*matrix.layout.size]
    size[dimension] = integer(count)
    return ViewReference(matrix.buffer, replace(matrix.layout, size=tuple(size)))
