"""The legality of wrapper lines.

1. A name is defined once: as an input, a constant, an allocation, a reuse, a view or a result.
2. Nothing is used before it is defined, nor after it was freed or its memory taken over.
3. A kernel is defined before it is called, with as many buffers and sizes as it has arguments.
4. Size symbols are defined before they occur.
5. Operands are names, numbers and literals; memory through another layout is a `View` line.
6. The source of a view is neither freed nor taken over while the view is in use.
7. A kernel runs on the device where its buffers lie, and a device's slot is defined once.
8. Nothing is done to an opaque value but to take it as input, give it to calls, return and free it.
9. The blocks of a condition or loop obey these, with names of their own; so many values are given
   to each as it counts.
10. A buffer that is placed in an arena lies within it, aligned, beside those that are in use there.
11. Names are identifiers, or such with dots between: no line holds text of a target.
12. `Return` is the last line, and the only one.

What breaks one of them raises `MalformedProgram` with the lines around.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fusewright.errors import MalformedProgram
from fusewright.ir import lines as wrapper
from fusewright.ir.forms import (
    blocks_of,
    buffers_defined,
    buffers_overwritten,
    buffers_read,
    indices_in,
    inner_views,
    parts_of,
    print_form,
)
from fusewright.ir.kernel import Kernel, Launch
from fusewright.ir.program import Buffer, ComputeNumber, ReadItem, ReadSize
from fusewright.records import field, record

_DOTTED: Final = re.compile(r"\w+((\.|::)\w+)*")


@record(frozen=False)
class _State:
    """The names that are defined and alive between two lines."""

    alive: set[str] = field(default_factory=set)
    gone: dict[str, str] = field(default_factory=dict)
    """Names that may not be used any more, and why."""

    devices: dict[str, str] = field(default_factory=dict)
    """By buffer whose layout is told, where it lies."""

    slots: set[str] = field(default_factory=lambda: {"cpu", "meta"})
    symbols: set[str] = field(default_factory=set)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    """By view in use, its source."""

    arenas: dict[str, int] = field(default_factory=dict)
    """Their bytes."""

    places: dict[str, wrapper.Place] = field(default_factory=dict)
    """By buffer in use that lies in an arena, where."""


def verify_lines(lines: Sequence[wrapper.Line]) -> None:
    """Check every invariant of a list of wrapper lines."""
    _verify(lines, _State())


def _verify(lines: Sequence[wrapper.Line], state: _State) -> None:
    for number, line in enumerate(lines):
        is_last = number == len(lines) - 1
        reason = _line(line, state)
        if reason is None and isinstance(line, wrapper.Return) != is_last:
            reason = "nothing is returned" if is_last else "lines after the return"
        if reason is not None:
            raise MalformedProgram("\n".join([reason, *_around(lines, number)]))


def _line(line: wrapper.Line, state: _State) -> str | None:
    """The error in a line, given the lines before it; without one, `state` takes its effect."""
    reason = _words(line) or _uses(line, state) or _blocks(line, state)
    if reason is not None:
        return reason
    match line:
        case wrapper.DefineSymbol() | ComputeNumber() | ReadSize() | ReadItem():
            state.symbols.add(line.name)
        case wrapper.DefineDevice(slot=slot):
            if slot in state.slots:
                return f"device {slot} is defined twice"
            state.slots.add(slot)
        case wrapper.DefineKernel(kernel=kernel):
            defined = state.kernels.setdefault(kernel.name, kernel)
            return None if defined is kernel else f"kernel {kernel.name} is defined twice"
        case wrapper.CallKernel(launch=launch):
            reason = _launch(launch, state)
        case wrapper.View(buffer=buffer, source=source):
            state.views[buffer.name] = source
        case wrapper.Free(name=name) | wrapper.FreeIfNotReused(buffer=Buffer(name=name)):
            reason = _end(name, "it was freed", state)
        case wrapper.Reuse(buffer=buffer, source=source):
            place = state.places.get(source)
            reason = _end(source, f"{buffer.name} took over its memory", state)
            if place is not None:
                state.places[buffer.name] = place
        case wrapper.Arena(buffer=buffer):
            state.arenas[buffer.name] = buffer.layout.span.constant
        case wrapper.Place():
            reason = _place(line, state)
            state.places[line.buffer.name] = line
        case _:
            pass
    for name in buffers_defined(line):
        if name in state.alive:
            return f"{name} is defined twice"
        state.alive.add(name)
    return reason or _device(line, state)


def _words(line: wrapper.Line) -> str | None:
    """The error in the names of a line: those of its buffers and of the function that it calls."""
    pieces = (piece for part in parts_of(line.form) for piece in part.pieces)
    words = [word for p in pieces if p.kind in ("word", "size") for word in p.values(line) if word]
    names = (*buffers_defined(line), *buffers_read(line), *buffers_overwritten(line))
    wrong = [name for name in names if not name.isidentifier()]
    wrong += [word for word in words if not _DOTTED.fullmatch(word)]
    return f"{wrong[0]!r} is no name" if wrong else None


def _device(line: wrapper.Line, state: _State) -> str | None:
    """The error in the devices on which the buffer of a line lies or its kernel runs."""
    buffer = getattr(line, "buffer", None)
    if isinstance(buffer, Buffer):
        if buffer.layout.is_opaque and not isinstance(line, _OPAQUE_LINES):
            return f"{buffer.name} is opaque"
        state.devices[buffer.name] = buffer.layout.device
    slot = line.launch.device if isinstance(line, wrapper.CallKernel) else None
    slot = buffer.layout.device if isinstance(buffer, Buffer) else slot
    return None if slot is None or slot in state.slots else f"device {slot} is not defined"


_OPAQUE_LINES = (wrapper.TakeInput, wrapper.FreeIfNotReused)
"""Lines of a buffer that may be opaque."""


def _blocks(line: wrapper.Line, state: _State) -> str | None:
    """The error in how many values the blocks of a line are given; the blocks are verified too."""
    if not isinstance(line, wrapper.Conditional | wrapper.WhileLoop | wrapper.ScanLoop):
        return None
    for block in blocks_of(line):
        _verify(block.lines, _State(kernels=dict(state.kernels), slots=set(state.slots)))
        count = len(line.arguments)
        if count != block.count:
            return f"{count} values for the block {block.name}, which is given {block.count}"
    return None


def _uses(line: wrapper.Line, state: _State) -> str | None:
    """The error in the names and operands that a line uses."""
    unknown = {s.name for index in indices_in(line) for s in index.free()} - state.symbols
    if unknown:
        return f"{', '.join(sorted(unknown))} is not defined"
    for name in (*buffers_read(line), *buffers_overwritten(line)):
        if name in state.gone:
            return f"{name} is used, but {state.gone[name]}"
        if name not in state.alive:
            return f"{name} is used before it is defined"
    return "an operand is a view without a line of its own" if inner_views(line) else None


def _end(name: str, reason: str, state: _State) -> str | None:
    """A buffer is not used any more, for a reason."""
    state.views.pop(name, None)
    if name in state.views.values():
        return f"{name} ends here, but a view of it is in use"
    state.places.pop(name, None)
    if any(place.arena == name for place in state.places.values()):
        return f"{name} ends here, but a buffer in it is in use"
    state.gone[name] = reason
    return None


def _place(line: wrapper.Place, state: _State) -> str | None:
    begin, limit = _bytes_of(line)
    if begin % wrapper.ALIGNMENT:
        return f"{line.buffer.name} is not aligned to {wrapper.ALIGNMENT} bytes"
    if limit > state.arenas.get(line.arena, 0):
        return f"{line.buffer.name} ends behind {line.arena}"
    for name, other in state.places.items():
        other_begin, other_limit = _bytes_of(other)
        if other.arena == line.arena and begin < other_limit and other_begin < limit:
            return f"{line.buffer.name} overlaps {name}, which is in use"
    return None


def _bytes_of(place: wrapper.Place) -> tuple[int, int]:
    """The offset where a buffer begins, and the one behind it."""
    layout = place.buffer.layout
    return place.offset, place.offset + layout.span.constant * layout.dtype.bytes


def _launch(launch: Launch, state: _State) -> str | None:
    kernel = state.kernels.get(launch.kernel)
    if kernel is None:
        return f"kernel {launch.kernel} is not defined"
    counts = (len(launch.buffers), len(launch.sizes))
    wanted = (len(kernel.arguments), len(kernel.sizes))
    if counts != wanted:
        return f"{counts} buffers and sizes for a kernel of {wanted}"
    for name in launch.buffers:
        device = state.devices.get(name, launch.device)
        if device != launch.device:
            return f"{name} lies on {device}, and the kernel runs on {launch.device}"
    return None


def _around(lines: Sequence[wrapper.Line], place: int) -> list[str]:
    first = max(0, place - 4)
    return [
        f"  {'>' if first + number == place else ' '} {print_form(line).splitlines()[0]}"
        for number, line in enumerate(lines[first : place + 5])
    ]
