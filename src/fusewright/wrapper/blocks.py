"""Conditions and loops hold the lines that they run.

before                               after
------                               -----
(y) = subprogram cond(p, x, s0)      kernel cpu_sin_3f ..
                                     (y) = if p on (x, s0)
                                       block cond_true of 2
                                         s0 = input 1
                                         x: f32[s0] = input 0
                                         ...
                                       block cond_false of 2
                                         ...

A block takes its inputs as they are laid out: an argument that lies otherwise is copied ahead of
the line, and what a loop's step hands to the next is seen to in the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fusewright.ir.forms import blocks_of
from fusewright.ir.index import integer
from fusewright.ir.lines import (
    Allocate,
    Block,
    CallChoice,
    CallKernel,
    CallProgram,
    Conditional,
    CopyInto,
    DefineChoice,
    DefineDevice,
    DefineKernel,
    DefineSymbol,
    EnsureLayout,
    FreeIfNotReused,
    Line,
    ScanLoop,
    TakeInput,
    WhileLoop,
)
from fusewright.ir.program import Buffer, BufferReference, Layout
from fusewright.records import record, replace
from fusewright.runtime.calling import CallingOrder
from fusewright.wrapper.choices import kernels_launched

MODULE_LINES = DefineDevice | DefineKernel | DefineChoice
"""Lines that stand once for a module, around all blocks."""


@record(kw_only=True)
class Flow:
    """A condition or loop whose functions were turned into lines."""

    line: Callable[[CallProgram, Sequence[Block]], Line]
    """The call as a line that runs blocks."""

    names: tuple[str, ...]
    lines: tuple[tuple[Line, ...], ...]
    orders: tuple[CallingOrder, ...]

    @property
    def blocks(self) -> list[Block]:
        """The functions as blocks."""
        return [*map(as_block, self.names, self.lines, self.orders)]

    @property
    def shared(self) -> list[Line]:
        """The lines that stand around the blocks."""
        return [line for lines in self.lines for line in lines if isinstance(line, MODULE_LINES)]


def as_block(name: str, lines: Sequence[Line], order: CallingOrder) -> Block:
    """The lines of a program as a block that takes arguments in the order of its graph."""
    assert all(number.dimension is None for number in order.numbers), "sizes are arguments"
    positions = {number.symbol: number.position for number in order.numbers}
    tensors = iter(order.tensors)
    own: list[Line] = []
    for line in lines:
        match line:
            case DefineSymbol():
                own.append(replace(line, position=positions[line.name]))
            case TakeInput():
                own.append(replace(line, position=next(tensors)))
            case DefineDevice() | DefineKernel() | DefineChoice():
                pass
            case _:
                own.append(line)
    return Block(name=name, count=order.arguments, lines=tuple(own))


def alone(block: Block, around: Sequence[Line]) -> tuple[Line, ...]:
    """The lines of a block with those of the lines around it that it needs."""
    used = _names_called(block.lines)
    used |= kernels_launched(
        line for line in around if isinstance(line, DefineChoice) and line.name in used
    )
    shared = [
        line
        for line in around
        if isinstance(line, DefineDevice)
        or (isinstance(line, DefineKernel) and line.kernel.name in used)
        or (isinstance(line, DefineChoice) and line.name in used)
    ]
    return (*shared, *block.lines)


def _names_called(lines: Iterable[Line]) -> set[str]:
    """The kernels and choices that lines call, those of their blocks among them."""
    used: set[str] = set()
    for line in lines:
        match line:
            case CallKernel(launch=launch):
                used.add(launch.kernel)
            case CallChoice(choice=choice):
                used.add(choice)
        used.update(*(_names_called(block.lines) for block in blocks_of(line)))
    return used


def with_blocks(lines: Sequence[Line], flows: Mapping[str, Flow]) -> tuple[Line, ...]:
    """`lines` with a line that holds blocks for each call of one of `flows`."""
    if not flows:
        return tuple(lines)
    layouts: dict[str, Layout] = {}
    result: list[Line] = []
    for line in lines:
        buffer = getattr(line, "buffer", None)
        if isinstance(buffer, Buffer):
            layouts[buffer.name] = buffer.layout
        if isinstance(line, CallProgram) and line.name in flows:
            flow = flows[line.name]
            result += _laid_out(flow.line(line, flow.blocks), layouts)
        else:
            result.append(line)
    shared = [line for flow in flows.values() for line in flow.shared]
    first = [line for line in result if isinstance(line, MODULE_LINES)]
    rest = [line for line in result if not isinstance(line, MODULE_LINES)]
    return (*dict.fromkeys((*first, *shared)), *rest)


def _laid_out(line: Any, layouts: Mapping[str, Layout]) -> Iterator[Line]:
    """The line between copies of those of its arguments that its blocks take laid out otherwise."""
    carried = 0 if isinstance(line, Conditional) else line.carried
    sliced = line.sliced if isinstance(line, ScanLoop) else 0
    copies: dict[int, Buffer] = {}
    for position, wanted in _wanted(line).items():
        argument = line.arguments[position]
        if not isinstance(argument, BufferReference) or argument.name not in layouts:
            continue
        layout = layouts[argument.name]
        if layout.is_opaque:
            continue
        is_sliced = carried <= position < carried + sliced
        stride = wanted.stride
        if is_sliced:
            stride = (replace(wanted, size=layout.size[1:]).span, *stride)
        begin = int(is_sliced)
        if _strides(layout)[begin:] != _strides(replace(layout, stride=stride))[begin:]:
            own = replace(layout, stride=stride, offset=integer(0))
            copies[position] = Buffer(name=f"{argument.name}_for_{position}", layout=own)
    for position, copy in copies.items():
        yield Allocate(buffer=copy)
        yield CopyInto(target=copy.name, source=line.arguments[position])
    arguments = tuple(
        BufferReference(copies[position].name) if position in copies else argument
        for position, argument in enumerate(line.arguments)
    )
    yield _handing_on(replace(line, arguments=arguments), carried + sliced)
    for copy in copies.values():
        yield FreeIfNotReused(buffer=copy)


def _strides(layout: Layout) -> list[Any]:
    """The strides that say where elements are."""
    pairs = zip(layout.size, layout.stride, strict=True)
    return [None if size == 1 else stride for size, stride in pairs]


def _wanted(line: Line) -> dict[int, Layout]:
    """By position, how the blocks of a line take their tensors."""
    inputs = (inner for block in blocks_of(line) for inner in block.lines)
    return {take.position: take.buffer.layout for take in inputs if isinstance(take, TakeInput)}


def _handing_on(line: Line, count: int) -> Line:
    """The line with the first `count` inputs of its blocks laid out as these take them, which
    results of a step need not be.
    """
    changes = {
        name: replace(block, lines=tuple(_ensuring(block.lines, count)))
        for name in ("body", "condition")
        if isinstance(block := getattr(line, name, None), Block)
    }
    return replace(line, **changes) if isinstance(line, WhileLoop | ScanLoop) else line


def _ensuring(lines: Sequence[Line], count: int) -> Iterator[Line]:
    inputs = [line for line in lines if isinstance(line, DefineSymbol | TakeInput)]
    yield from inputs
    for line in inputs:
        is_opaque = isinstance(line, TakeInput) and line.buffer.layout.is_opaque
        if isinstance(line, TakeInput) and line.position < count and not is_opaque:
            yield EnsureLayout(buffer=line.buffer)
    yield from (line for line in lines if not isinstance(line, DefineSymbol | TakeInput))
