"""Convolutions by a weight of one pixel, and their gradients, as matrix products over channels,
where the device's kernels multiply faster than its library does.

Before:
```
y: f32[2,64,8,8] = extern aten.convolution.default(x, w, b, …)
```
After:
```
y_product: f32[2,64,8,8] = reduce dot [i0<2, i1<64, i2<8, i3<8] over [r0<32]
  yield w[32*i1 + r0] * x[2048*i0 + 64*r0 + 8*i2 + i3]
y: f32[2,64,8,8] = pointwise [i0<2, i1<64, i2<8, i3<8]
  yield y_product[4096*i0 + 64*i1 + 8*i2 + i3] + b[i1]
```
Pixels lie in one row, so that their loops are merged later. Bias, batch norm and activation fuse
with the product. The gradient of `x` is the product with the transposed weight. That of the weight
is a sum over images and pixels, while a product sums over one loop: it is the sum of one product an
image, or one product of copies in which a channel's pixels of all images lie in a row, whichever
moves fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final

from fusewright.ir.index import Index, integer, product
from fusewright.ir.program import (
    Buffer,
    CallOperator,
    ComputedBuffer,
    Layout,
    ListOf,
    Literal,
    Operand,
    Pointwise,
    Program,
    Reduction,
    Statement,
)
from fusewright.ir.value import Value
from fusewright.records import record, replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.products import (
    Matrix,
    Position,
    buffer_between,
    gathered,
    loops_of,
    matrix_of,
    matrix_product,
    multiplies_faster,
    with_loops,
)

Loops = tuple[ComputedBuffer, ...]


@record(kw_only=True)
class ConvolutionSizes:
    """The sizes of a convolution by a weight of one pixel."""

    images: Index
    inputs: Index
    """Channels of the input."""

    outputs: Index
    """Channels of the result."""

    pixels: Index


def convolutions_as_products(program: Program, analysis: Analysis) -> Program:
    """Write the convolutions out that the kernels of their device are worth it for."""
    return with_loops(program, lambda statement: _loops_of(statement, analysis))


def _loops_of(statement: Statement, analysis: Analysis) -> Loops:
    """The loops in place of a convolution or its gradients; nothing where the call stays."""
    if not isinstance(statement, CallOperator) or statement.keywords:
        return ()
    write = OPERATORS.get(statement.operator)
    return () if write is None else write(statement, analysis)


def _forward(call: CallOperator, analysis: Analysis) -> Loops:
    x, weight, bias = (matrix_of(operand, analysis) for operand in call.arguments[:3])
    (output,) = call.outputs
    has_bias = call.arguments[2] != Literal(None)
    if x is None or weight is None or (has_bias and bias is None):
        return ()
    if not _is_product(weight, call.arguments[3:], (x.layout, output.layout)):
        return ()
    sizes = _sizes(x, weight)
    size = sizes.images, sizes.outputs, sizes.pixels
    if not multiplies_faster(output, size, sizes.inputs, analysis):
        return ()

    def load_bias(position: Position) -> Value:
        assert bias is not None
        return bias.load(analysis, position[1:2])

    body = matrix_product(
        output.layout.size,
        sizes.inputs,
        lambda at, r: _weight_at(weight, at[1], r, analysis),
        lambda at, r: x.load(analysis, (at[0], r, *at[2:])),
        analysis,
    )
    return gathered(output, body, load_bias if has_bias else None, analysis)


def _backward(call: CallOperator, analysis: Analysis) -> Loops:
    gradient, x, weight = (matrix_of(operand, analysis) for operand in call.arguments[:3])
    if gradient is None or x is None or weight is None:
        return ()
    outputs = [None if place is None else call.outputs[place] for place in call.results]
    of_x, of_weight, of_bias = outputs
    images = [x.layout, gradient.layout, *(() if of_x is None else (of_x.layout,))]
    if not _is_product(weight, call.arguments[4:10], images):
        return ()
    sizes = _sizes(x, weight)
    loops: list[ComputedBuffer] = []
    if of_x is not None:
        size = sizes.images, sizes.inputs, sizes.pixels
        if not multiplies_faster(of_x, size, sizes.outputs, analysis):
            return ()
        loops += _gradient_of_input(of_x, gradient, weight, sizes, analysis)
    if of_weight is not None:
        size = sizes.images, sizes.outputs, sizes.inputs
        if not multiplies_faster(of_weight, size, sizes.pixels, analysis):
            return ()
        loops += _gradient_of_weight(of_weight, gradient, x, sizes, analysis)
    if of_bias is not None:
        loops += _gradient_of_bias(of_bias, gradient, analysis)
    return tuple(loops)


OPERATORS: Final[Mapping[str, Callable[[CallOperator, Analysis], Loops]]] = {
    "aten.convolution.default": _forward,
    "aten.convolution_backward.default": _backward,
}


# Which convolutions are products ------------------------------------------------------------------


def _is_product(weight: Matrix, options: tuple[Operand, ...], images: Iterable[Layout]) -> bool:
    """Whether each pixel of the result is the weight, a matrix, times a pixel of the input; and
    pixels of these images lie in one row. `options`: from the stride to the number of groups.
    """
    stride, padding, _dilation, transposed, _output_padding, groups = options
    if transposed != Literal(False) or not _is_number(groups, 1):
        return False
    if not _are_all(stride, 1) or not _are_all(padding, 0):
        return False
    if any(size != 1 for size in weight.layout.size[2:]):
        return False
    return all(_row_of_pixels(image) is not None for image in images)


def _are_all(operand: Operand, number: int) -> bool:
    """Whether a list holds but this number."""
    return isinstance(operand, ListOf) and all(_is_number(item, number) for item in operand.items)


def _is_number(operand: Operand, number: int) -> bool:
    return operand in (Literal(number), integer(number))


def _row_of_pixels(layout: Layout) -> Layout | None:
    """Images of pixels that lie in one row, as (image, channel, pixel); None if these do not."""
    size, stride = layout.size[2:], layout.stride[2:]
    dimensions = [pair for pair in zip(size, stride, strict=True) if pair[0] != 1]
    for (_, outer), (inner_size, inner) in pairwise(dimensions):
        if outer != inner_size * inner:
            return None
    step = dimensions[-1][1] if dimensions else integer(1)
    return replace(
        layout, size=(*layout.size[:2], product(size)), stride=(*layout.stride[:2], step)
    )


def _sizes(x: Matrix, weight: Matrix) -> ConvolutionSizes:
    images, _, *pixels = x.layout.size
    outputs, inputs, *_ = weight.layout.size
    return ConvolutionSizes(images=images, inputs=inputs, outputs=outputs, pixels=product(pixels))


# The loops ----------------------------------------------------------------------------------------


def _gradient_of_input(
    output: Buffer, gradient: Matrix, weight: Matrix, sizes: ConvolutionSizes, analysis: Analysis
) -> Loops:
    body = matrix_product(
        output.layout.size,
        sizes.outputs,
        lambda at, r: _weight_at(weight, r, at[1], analysis),
        lambda at, r: gradient.load(analysis, (at[0], r, *at[2:])),
        analysis,
    )
    return gathered(output, body, None, analysis)


def _gradient_of_weight(
    output: Buffer, gradient: Matrix, x: Matrix, sizes: ConvolutionSizes, analysis: Analysis
) -> Loops:
    products = sizes.outputs * sizes.inputs
    copies = sizes.pixels * (sizes.outputs + sizes.inputs)
    if analysis.hint(sizes.images) == 1 or analysis.hint(products) <= analysis.hint(copies):
        return _sum_over_images(output, gradient, x, sizes, analysis)
    copied_gradient = _pixels_in_a_row(f"{output.name}_gradient", output, gradient, analysis)
    copied_x = _pixels_in_a_row(f"{output.name}_input", output, x, analysis)
    depth = sizes.images * sizes.pixels
    body = matrix_product(
        output.layout.size,
        depth,
        lambda at, r: _element(copied_gradient.outputs[0], at[0] * depth + r, analysis),
        lambda at, r: _element(copied_x.outputs[0], at[1] * depth + r, analysis),
        analysis,
    )
    return (copied_gradient, copied_x, *gathered(output, body, None, analysis))


def _sum_over_images(
    output: Buffer, gradient: Matrix, x: Matrix, sizes: ConvolutionSizes, analysis: Analysis
) -> Loops:
    """One product of each image, and their sum."""
    size = (sizes.images, sizes.outputs, sizes.inputs)
    parts = buffer_between(f"{output.name}_images", size, output, analysis)
    gradient, x = _in_a_row(gradient), _in_a_row(x)
    products = matrix_product(
        size,
        sizes.pixels,
        lambda at, r: gradient.load(analysis, (*at[:2], r)),
        lambda at, r: x.load(analysis, (at[0], at[2], r)),
        analysis,
    )

    loops = loops_of(output.layout.size, "i")
    (over_images,) = loops_of((sizes.images,), "r")
    part = over_images.index, loops[0].index, loops[1].index
    total = Reduction(
        loops=loops,
        reduction_loops=(over_images,),
        kind="sum",
        value=analysis.load(parts, part),
    )
    return (
        ComputedBuffer(outputs=(parts,), body=products),
        *gathered(output, total, None, analysis),
    )


def _gradient_of_bias(output: Buffer, gradient: Matrix, analysis: Analysis) -> Loops:
    images, _, *pixels = gradient.layout.size
    loops = loops_of(output.layout.size, "i")
    inner = loops_of((images, *pixels), "r")
    image, *pixel = (symbol.index for symbol in inner)
    value = gradient.load(analysis, (image, loops[0].index, *pixel))
    body = Reduction(loops=loops, reduction_loops=inner, kind="sum", value=value)
    return gathered(output, body, None, analysis)


def _pixels_in_a_row(
    name: str, output: Buffer, images: Matrix, analysis: Analysis
) -> ComputedBuffer:
    """A copy in which a channel's pixels of all images lie in a row: (channel, image, pixel)."""
    row = _in_a_row(images)
    count, channels, pixels = row.layout.size
    size = (channels, count, pixels)
    copy = buffer_between(name, size, output, analysis)
    loops = loops_of(size, "i")
    channel, image, pixel = (symbol.index for symbol in loops)
    value = row.load(analysis, (image, channel, pixel))
    return ComputedBuffer(outputs=(copy,), body=Pointwise(loops=loops, value=value))


def _in_a_row(images: Matrix) -> Matrix:
    layout = _row_of_pixels(images.layout)
    assert layout is not None
    return replace(images, layout=layout)


def _weight_at(weight: Matrix, output: Index, channel: Index, analysis: Analysis) -> Value:
    """The weight between two channels."""
    pixel = (integer(0),) * (len(weight.layout.size) - 2)
    return weight.load(analysis, (output, channel, *pixel))


def _element(buffer: Buffer, index: Index, analysis: Analysis) -> Value:
    return analysis.expressions.load(buffer.name, index, buffer.layout.dtype)
