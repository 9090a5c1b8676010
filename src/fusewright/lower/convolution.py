"""Convolutions: the library's call, its operands laid out as its fast kernels want them; on a GPU
the bias is added by ours.

    convolution(x, w, b)    ->    convolution(x laid out with channels last, w likewise) + b

The library's kernels for half types have channels last, and would copy operands and result at each
call. Where nothing but the graph's results has to lie as eager's, what is read from such a result,
element by element, lies likewise (`Builder.free_layouts`), so that chains of convolutions copy
nothing. On a CPU this is so where weights are frozen, which are then packed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index
from fusewright.ir.limits import aligned_elements
from fusewright.ir.program import CallOperator, Layout
from fusewright.lower.boxes import Box, channels_last, same_strides
from fusewright.lower.builder import Call, ProgramBuilder
from fusewright.lower.extern import operand
from fusewright.lower.rules import rule
from fusewright.records import replace

PACKED_CONVOLUTION = "mkldnn._convolution_pointwise.default"
"""oneDNN's operator, of a weight in a layout of its own."""

HALF = (DType.F16, DType.BF16)


COLOURS = 4
"""Channels of images that it has kernels of their own for, at most."""


def takes_channels_last(read: Index, written: Index, dtype: DType) -> bool:
    """Whether the library's kernels have such channels last, whole pieces of memory. Others it pads
    or converts; what some of those give for infinities is not what eager's give.
    """
    if not (read.is_constant and written.is_constant):
        return False
    unit = aligned_elements(dtype)
    is_read = read.constant % unit == 0 or read.constant <= COLOURS
    return is_read and written.constant % unit == 0


def is_on_gpu(layout: Layout) -> bool:
    """Whether the rule here is meant for results like this one."""
    return layout.device.startswith("cuda")


@rule("aten.convolution.default")
def convolution(
    call: Call,
    x: Box,
    weight: Box,
    bias: Box | None,
    stride: Sequence[Any],
    padding: Sequence[Any],
    dilation: Sequence[Any],
    transposed: bool,
    output_padding: Sequence[Any],
    groups: int,
) -> Any:
    result = call.result
    builder = call.builder
    if not is_on_gpu(result):
        return NotImplemented
    is_image = result.dtype in HALF and len(result.size) == 4
    is_plain = is_image and groups == 1 and not transposed
    moves = builder.layouts_are_free and is_plain
    moves = moves and takes_channels_last(x.size[1], result.size[1], result.dtype)
    if bias is None and not moves:
        return NotImplemented
    if moves:
        x, weight = with_channels_last(builder, x), with_channels_last(builder, weight)
        result = replace(result, stride=channels_last(result.size))
    arguments = (x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    (box,) = library_call(call, arguments, (result,), moves=moves)
    if bias is None:
        return box
    return call.elementwise(lambda at: call.read(box, at) + call.read(bias, (at[1],)))


@rule(PACKED_CONVOLUTION)
def packed_convolution(call: Call, x: Box, *arguments: Any) -> Box:
    """A convolution of a packed weight on a CPU, which `aot/freezing.py` makes where tensors may
    lie anyhow.
    """
    layout = replace(call.result, stride=channels_last(call.result.size))
    operands = (with_channels_last(call.builder, x), *arguments)
    (box,) = library_call(call, operands, (layout,), moves=True)
    return box


def library_call(
    call: Call, arguments: Sequence[Any], layouts: Sequence[Layout], *, moves: bool
) -> tuple[Box, ...]:
    """The operator's own call, with results laid out so; `moves`: not as eager's."""
    builder = call.builder
    buffers = tuple(builder.buffer(layout) for layout in layouts)
    builder.context.note("extern", call.operator, "")
    builder.statements.append(
        CallOperator(
            outputs=buffers,
            operator=call.operator,
            arguments=tuple(operand(builder, argument) for argument in arguments),
            results=tuple(range(len(buffers))) if len(buffers) > 1 else (),
        )
    )
    builder.origins[buffers[0].name] = call.all_origins
    if moves:
        builder.free_layouts |= dict(zip((buffer.name for buffer in buffers), layouts, strict=True))
    boxes = tuple(map(builder.input, buffers))
    for box, eagers in zip(boxes, call.results, strict=True):
        box.storage.stride = eagers.stride
    return boxes


def with_channels_last(builder: ProgramBuilder, box: Box) -> Box:
    """`box` in that layout: computed so where it is not in memory yet, else itself or a copy."""
    stride = channels_last(box.size)
    storage = box.storage
    if storage.is_lazy and box.position is None and not storage.is_fixed:
        storage.stride, storage.is_fixed = stride, True
    builder.realise(box)
    layout = builder.layout(box)
    lies_so = layout is not None and same_strides(box.size, layout.stride, stride)
    return box if lies_so else builder.copy(box, stride)
