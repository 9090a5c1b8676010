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
13. The alternatives of a choice have names of their own, allocate what they need beside the
   choice's arguments, and free it. Each writes to the same arguments, and reads the same of those
   before it does, over the sizes of the choice: any of them can stand for any other.

What breaks one of them raises `MalformedProgram` with the lines around.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    choices: dict[str, wrapper.DefineChoice] = field(default_factory=dict)
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
        case wrapper.DefineKernel() | wrapper.DefineChoice():
            return _definition(line, state)
        case wrapper.CallKernel() | wrapper.CallChoice():
            reason = _launch(line, state)
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


def _definition(line: wrapper.DefineKernel | wrapper.DefineChoice, state: _State) -> str | None:
    if isinstance(line, wrapper.DefineKernel):
        kernel = state.kernels.setdefault(line.kernel.name, line.kernel)
        return None if kernel is line.kernel else f"kernel {kernel.name} is defined twice"
    choice = state.choices.setdefault(line.name, line)
    return _choice(line, state) if choice is line else f"choice {line.name} is defined twice"


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
    slot = line.device if isinstance(line, wrapper.CallChoice) else slot
    slot = buffer.layout.device if isinstance(buffer, Buffer) else slot
    return None if slot is None or slot in state.slots else f"device {slot} is not defined"


_OPAQUE_LINES = (wrapper.TakeInput, wrapper.FreeIfNotReused)
"""Lines of a buffer that may be opaque."""


def _blocks(line: wrapper.Line, state: _State) -> str | None:
    """The error in how many values the blocks of a line are given; the blocks are verified too."""
    if not isinstance(line, wrapper.Conditional | wrapper.WhileLoop | wrapper.ScanLoop):
        return None
    for block in blocks_of(line):
        own = _State(kernels=dict(state.kernels), slots=set(state.slots), choices=state.choices)
        _verify(block.lines, own)
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


def _launch(line: wrapper.CallKernel | wrapper.CallChoice, state: _State) -> str | None:
    """The error in the arguments of a kernel or choice, and in where they lie."""
    definition: Kernel | wrapper.DefineChoice | None
    call: Launch | wrapper.CallChoice
    if isinstance(line, wrapper.CallKernel):
        kind, name, call = "kernel", line.launch.kernel, line.launch
        definition = state.kernels.get(name)
    else:
        kind, name, call = "choice", line.choice, line
        definition = state.choices.get(name)
    if definition is None:
        return f"{kind} {name} is not defined"
    counts = (len(call.buffers), len(call.sizes))
    wanted = (len(definition.arguments), len(definition.sizes))
    if counts != wanted:
        return f"{counts} buffers and sizes for a {kind} of {wanted}"
    for place, buffer in enumerate(call.buffers):
        device = state.devices.get(buffer, call.device)
        if isinstance(definition, Kernel) and definition.takes_value(place):
            if device != "cpu":
                return f"{buffer} lies on {device}, and the kernel is given a number of the CPU"
        elif device != call.device:
            return f"{buffer} lies on {device}, and the kernel runs on {call.device}"
    return None


# Choices ------------------------------------------------------------------------------------------

_OF_ALTERNATIVES = (
    wrapper.Allocate, wrapper.Free, wrapper.View, wrapper.CallKernel, wrapper.CallExternOut,
    wrapper.CopyInto,
)  # fmt: skip
"""Lines that an alternative may have."""


def _choice(choice: wrapper.DefineChoice, state: _State) -> str | None:
    names = [alternative.name for alternative in choice.alternatives]
    if len(set(names)) != len(names) or not names:
        return f"{choice.name} has no alternatives, or two of one name"
    for alternative in choice.alternatives:
        reason = _alternative(alternative, choice, state.kernels)
        if reason is not None:
            return f"{alternative.name}: {reason}"
    return None


def _alternative(
    alternative: wrapper.Alternative, choice: wrapper.DefineChoice, kernels: dict[str, Kernel]
) -> str | None:
    arguments = {argument.name: argument for argument in choice.arguments}
    own = _State(
        alive=set(arguments),
        kernels=kernels,
        slots={wrapper.CALLER},
        devices=dict.fromkeys(arguments, wrapper.CALLER),
        symbols={symbol.name for symbol in choice.sizes},
    )
    written: set[str] = set()
    read_first: set[str] = set()
    views: dict[str, str] = {}
    for line in alternative.lines:
        if not isinstance(line, _OF_ALTERNATIVES):
            return f"{type(line).__name__} is no line of an alternative"
        if isinstance(line, wrapper.View):
            views[line.buffer.name] = views.get(line.source, line.source)
        read, overwritten = (
            {views.get(name, name) for name in used} for used in memory_used(line, kernels)
        )
        read_first |= (read - written) & set(arguments)
        written |= overwritten & set(arguments)
        reason = _line(line, own)
        if reason is not None:
            return reason
    left = own.alive - set(own.gone) - set(arguments)
    ended = set(own.gone) & set(arguments)
    if left or ended:
        return f"{', '.join(sorted(left | ended))}: freed, or left, by the wrong side"
    if written != {argument.name for argument in choice.arguments if argument.is_written}:
        return f"it writes to {', '.join(sorted(written)) or 'nothing'}"
    in_place = {argument.name for argument in choice.arguments if argument.is_in_place}
    if read_first & written != in_place:
        return f"it changes {', '.join(sorted(read_first & written)) or 'nothing'} in place"
    return None


def memory_used(line: wrapper.Line, kernels: Mapping[str, Kernel]) -> tuple[set[str], set[str]]:
    """The buffers that a line reads, and those that it writes to."""
    if isinstance(line, wrapper.CallKernel):
        arguments = kernels[line.launch.kernel].arguments if line.launch.kernel in kernels else ()
        pairs = list(zip(arguments, line.launch.buffers, strict=False))
        return (
            {name for argument, name in pairs if argument.is_read},
            {name for argument, name in pairs if argument.is_written},
        )
    is_view = isinstance(line, wrapper.View)
    return set() if is_view else set(buffers_read(line)), set(buffers_overwritten(line))


def _around(lines: Sequence[wrapper.Line], place: int) -> list[str]:
    first = max(0, place - 4)
    return [
        f"  {'>' if first + number == place else ' '} {print_form(line).splitlines()[0]}"
        for number, line in enumerate(lines[first : place + 5])
    ]
