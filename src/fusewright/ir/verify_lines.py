"""The legality of wrapper lines.

1. A name is defined once: as an input, a constant, an allocation, a reuse, a view or a result.
2. Nothing is used before it is defined, nor after it was freed or its memory taken over.
3. A kernel is defined before it is called, with as many buffers and sizes as it has arguments.
4. Size symbols are defined before they occur.
5. `Return` is the last line, and the only one.

What breaks one of them raises `MalformedProgram` with the lines around.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.errors import MalformedProgram
from fusewright.ir import lines as wrapper
from fusewright.ir.forms import (
    buffers_defined,
    buffers_overwritten,
    buffers_read,
    indices_in,
    print_form,
)
from fusewright.ir.kernel import Kernel, Launch
from fusewright.ir.program import NumberStatement
from fusewright.records import field, record


@record(frozen=False)
class _State:
    """What is defined and alive between two lines."""

    alive: set[str] = field(default_factory=set)
    gone: dict[str, str] = field(default_factory=dict)
    """Names that may not be used any more, and why."""

    symbols: set[str] = field(default_factory=set)
    kernels: dict[str, Kernel] = field(default_factory=dict)


def verify_lines(lines: Sequence[wrapper.Line]) -> None:
    """Check every invariant of a list of wrapper lines."""
    state = _State()
    for number, line in enumerate(lines):
        is_last = number == len(lines) - 1
        reason = _line(line, state)
        if reason is None and isinstance(line, wrapper.Return) != is_last:
            reason = "nothing is returned" if is_last else "lines after the return"
        if reason is not None:
            raise MalformedProgram("\n".join([reason, *_around(lines, number)]))


def _line(line: wrapper.Line, state: _State) -> str | None:
    """What is wrong with a line, given the lines before it; else their effect on `state`."""
    if isinstance(line, wrapper.DefineSymbol):
        state.symbols.add(line.name)
        return None
    unknown = {s.name for index in indices_in(line) for s in index.free()} - state.symbols
    if unknown:
        return f"{', '.join(sorted(unknown))} is not defined"
    for name in (*buffers_read(line), *buffers_overwritten(line)):
        if name in state.gone:
            return f"{name} is used, but {state.gone[name]}"
        if name not in state.alive:
            return f"{name} is used before it is defined"
    match line:
        case wrapper.DefineKernel(kernel=kernel):
            known = state.kernels.setdefault(kernel.name, kernel)
            return None if known is kernel else f"kernel {kernel.name} is defined twice"
        case wrapper.CallKernel(launch=launch):
            return _launch(launch, state)
        case wrapper.Free(name=name):
            state.gone[name] = "it was freed"
        case wrapper.FreeIfNotReused(buffer=buffer):
            state.gone[buffer.name] = "it was freed"
        case wrapper.Reuse(buffer=buffer, source=source):
            state.gone[source] = f"{buffer.name} took over its memory"
        case _:
            pass
    for name in buffers_defined(line):
        if name in state.alive:
            return f"{name} is defined twice"
        state.alive.add(name)
    if isinstance(line, NumberStatement):
        state.symbols.add(line.name)
    return None


def _launch(launch: Launch, state: _State) -> str | None:
    kernel = state.kernels.get(launch.kernel)
    if kernel is None:
        return f"kernel {launch.kernel} is not defined"
    given = (len(launch.buffers), len(launch.sizes))
    wanted = (len(kernel.arguments), len(kernel.sizes))
    if given != wanted:
        return f"{given} buffers and sizes for a kernel of {wanted}"
    return None


def _around(lines: Sequence[wrapper.Line], place: int) -> list[str]:
    first = max(0, place - 4)
    return [
        f"  {'>' if first + number == place else ' '} {print_form(line).splitlines()[0]}"
        for number, line in enumerate(lines[first : place + 5])
    ]
