"""Triton kernels that the program wrote: each launch writes to memory of its own, in which what it
changes is copied first, unless nothing was there.

    out = aten.empty(…)                       buf0 = unfilled
    add = add(x, y, out, n)             ->    user kernel add(arg0, arg1, buf0, s0) mutates [buf0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from fusewright.ir.program import (
    Buffer,
    BufferReference,
    CallUserKernel,
    Layout,
    Operand,
)
from fusewright.lower.boxes import Box, same_strides
from fusewright.lower.builder import Call, ProgramBuilder
from fusewright.lower.extern import operand
from fusewright.lower.families import VIEWS
from fusewright.operators import facts
from fusewright.torch_compat import OpOverload
from fusewright.user_kernels import UserKernelCall


def launch_user_kernel(
    call: Call,
    node: fx.Node,
    launch: UserKernelCall,
    arguments: Sequence[Any],
    layouts: Sequence[Layout | None],
    dies: Callable[[Box], bool],
) -> tuple[Box, ...]:
    """Launch a kernel of the program's; gives what the tensors become that it writes to. `layouts`:
    how the kernel expects each argument to lie, None for numbers. `dies`: whether nothing later
    reads a tensor as it is now.
    """
    builder = call.builder
    operands: list[Operand] = []
    written: list[Buffer] = []
    for number, (argument, layout) in enumerate(zip(arguments, layouts, strict=True)):
        if layout is None:
            operands.append(operand(builder, argument))
        elif number not in launch.written:
            operands.append(_lying_as(builder, argument, layout))
        else:
            own = _own_memory(builder, argument, layout) if dies(argument) else None
            buffer = own or _new_memory(builder, node.args[number], argument, layout)
            operands.append(BufferReference(buffer.name))
            written.append(buffer)
    statement = CallUserKernel(
        name=node.name,
        arguments=tuple(operands),
        mutates=tuple(buffer.name for buffer in written),
        has_effect=launch.has_effect,
        origins=call.all_origins,
    )
    builder.statements.append(statement)
    return tuple(map(builder.input, written))


def _lying_as(builder: ProgramBuilder, box: Box, wanted: Layout) -> Operand:
    """A tensor in memory, laid out as wanted."""
    builder.realise(box)
    layout = builder.layout(box)
    if layout is None or not same_strides(layout.size, layout.stride, wanted.stride):
        box = builder.copy(box, wanted.stride)
    return builder.operand(box)


def _own_memory(builder: ProgramBuilder, box: Box, wanted: Layout) -> Buffer | None:
    """The memory of a tensor, where it lies as wanted, and was allocated for it alone."""
    buffer, layout = box.storage.buffer, box.storage.layout
    if buffer is None or box.position is not None or not builder.is_owned(buffer):
        return None
    if layout != buffer.layout or not same_strides(layout.size, layout.stride, wanted.stride):
        return None
    builder.realise_readers(buffer.name)
    return buffer


def _new_memory(builder: ProgramBuilder, node: Any, box: Box, layout: Layout) -> Buffer:
    """New memory, which holds what the tensor of `node` does."""
    if not _is_unfilled(node):
        return builder.realise(builder.copy(box, layout.stride))
    return builder.unfilled(layout)


def _is_unfilled(node: Any) -> bool:
    """Whether a node gives memory that nothing has been written to, or a view of such."""
    while isinstance(node, fx.Node) and isinstance(node.target, OpOverload):
        if facts(node.target).is_unfilled:
            return True
        if str(node.target) not in VIEWS:
            return False
        node = node.args[0]
    return False
