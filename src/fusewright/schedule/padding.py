"""Room behind the rows of matrices that the library multiplies, so that each begins at an address
that it reads and writes in whole pieces.

Before, with rows of 50257 elements of two bytes:
```
g: bf16[2048, 50257] = pointwise [i0<2048, i1<50257]
  yield exp(x[50257*i0 + i1])
y: bf16[2048, 768] = extern aten.mm.default(g, w)
```
After:
```
g: bf16[2048, 50257] stride [50264, 1] = pointwise [i0<2048, i1<50257]
  yield exp(x[50257*i0 + i1])
y: bf16[2048, 768] = extern aten.mm.default(g, w)
```
Only where nobody but kernels and products of the program see the buffer, so that it costs nothing
but the room. `Limits.wants_aligned_rows` says for which products it is worth it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusewright.ir.index import Index
from fusewright.ir.limits import ALIGNED_ROW_BYTES
from fusewright.ir.program import (
    Body,
    Buffer,
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
from fusewright.schedule.products import OPERATORS, ProductCall, product_sizes

SHORTEST_ROW = 128
"""Elements of a row that is given room at least, which is a sixteenth of it then."""


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


def pad_rows(program: Program, analysis: Analysis) -> Program:
    """Give room to the rows of each buffer of which a product wants it and nobody sees it."""
    wanted = _wanted(program, analysis)
    if not wanted:
        return program
    refused = _seen_elsewhere(program, wanted, analysis)
    paddings = {name: padding for name, padding in wanted.items() if name not in refused}
    if not paddings:
        return program
    statements = tuple(_moved(statement, paddings, analysis) for statement in program.statements)
    for statement in statements:
        analysis.buffers.update({buffer.name: buffer for buffer in statement.outputs})
    return replace(program, statements=statements)


# Which buffers ------------------------------------------------------------------------------------


def _wanted(program: Program, analysis: Analysis) -> dict[str, Padding]:
    """The room that products want, by buffer."""
    wanted: dict[str, Padding] = {}
    for statement in program.statements:
        call = _product(statement, analysis)
        if call is None:
            continue
        output = statement.outputs[0]
        size = output.layout.size
        sizes = product_sizes(output, size, call.left.layout.size[-1], analysis)
        limits = analysis.limits_of(output.layout.device)
        if sizes is None or not limits.wants_aligned_rows(sizes):
            continue
        matrices = [(matrix.buffer, matrix.layout) for matrix in (call.left, call.right)]
        for name, layout in (*matrices, (output.name, output.layout)):
            padding = _padding(analysis.buffers[name].layout, layout)
            if padding is not None:
                wanted.setdefault(name, padding)
    return wanted


def _product(statement: Statement, analysis: Analysis) -> ProductCall | None:
    """The product that a statement calls the library for, if it does, and writes to memory that is
    given to it.
    """
    if not isinstance(statement, CallOperator) or statement.keywords or not statement.out_operator:
        return None
    read = OPERATORS.get(statement.operator)
    return None if read is None else read(statement.arguments, analysis)


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
    unit = ALIGNED_ROW_BYTES // buffer.dtype.bytes
    if length < SHORTEST_ROW or length % unit == 0 or between not in buffer.stride:
        return None
    return Padding(length, length + -length % unit)


def _seen_elsewhere(
    program: Program, wanted: Mapping[str, Padding], analysis: Analysis
) -> set[str]:
    """The buffers among these which something is about to see that has to find them as they are."""
    made = {b.name for s in program.statements if _may_write(s, analysis) for b in s.outputs}
    refused = {name for name in wanted if name not in made} | output_buffers(program)
    refused.update(name for pair in program.mutations for name in pair)
    for statement in program.statements:
        match statement:
            case ComputedBuffer(body=body):
                refused.update(_read_otherwise(body, wanted, analysis))
            case CallOperator() if _product(statement, analysis) is not None:
                for operand in statement.arguments:
                    match operand:
                        case ViewReference(name=name, layout=layout) if name in wanted:
                            if wanted[name].layout(layout) is None:
                                refused.add(name)
            case _:
                effects = statement_effects(statement)
                refused.update((*effects.reads, *effects.writes, *effects.overwrites))
    return refused


def _may_write(statement: Statement, analysis: Analysis) -> bool:
    """Whether a statement writes its result wherever that is to lie."""
    match statement:
        case ComputedBuffer(body=Scatter() | Scan()):
            return False
        case ComputedBuffer():
            return True
    return _product(statement, analysis) is not None


def _read_otherwise(
    body: Body, wanted: Mapping[str, Padding], analysis: Analysis
) -> Iterator[str]:
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


def _with_room(
    buffers: tuple[Buffer, ...], paddings: Mapping[str, Padding]
) -> tuple[Buffer, ...]:
    return tuple(
        replace(buffer, layout=_layout(buffer.name, buffer.layout, paddings))
        for buffer in buffers
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
