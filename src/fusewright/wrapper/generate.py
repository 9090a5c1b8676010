"""From a Schedule and its kernels to wrapper lines: every allocation, launch, call and last use, in
order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fusewright.ir.group import Group, Schedule
from fusewright.ir.kernel import Kernel, Launch
from fusewright.ir.lines import (
    Allocate,
    CallExtern,
    CallExternOut,
    CallKernel,
    CallProgram,
    Constant,
    CopyInto,
    DefineKernel,
    DefineSymbol,
    EnsureLayout,
    FreeIfNotReused,
    Line,
    Return,
    Reuse,
    TakeInput,
)
from fusewright.ir.program import (
    Buffer,
    BufferReference,
    CallOperator,
    CallSubprogram,
    ComputeNumber,
    CopyBack,
    FindNumber,
    Program,
)
from fusewright.operators import facts
from fusewright.records import replace


def generate_lines(
    schedule: Schedule,
    last_uses: Sequence[Sequence[str]],
    in_place: Mapping[str, str],
    kernels: Iterable[Kernel],
    launches: Mapping[int, Launch],
) -> tuple[Line, ...]:
    """Write out `schedule` as lines.

    `last_uses` names, for each step, the buffers that nothing uses after it; `in_place` by buffer
    the input whose memory it takes over; `launches` holds the launch of each group by its place
    among the steps.

    before                                 after
    ------                                 -----
    group gelu reads x writes y            Allocate(y)
                                           CallKernel(cpu_gelu_3f2a, x, y)
                                           FreeIfNotReused(x)
    """
    program = schedule.program
    lines: list[Line] = [DefineKernel(kernel=kernel) for kernel in kernels]
    lines += _take_inputs(program)
    owned = _owned_buffers(schedule)
    buffers = _buffers(schedule)
    constants = {buffer.name for buffer in program.constants}
    unknown = {fact.symbol.name for fact in program.sizes}
    unknown -= {fact.symbol.name for fact in program.input_sizes}
    waiting: list[EnsureLayout] = []
    for position, (step, names) in enumerate(zip(schedule.steps, last_uses, strict=True)):
        dying = tuple(buffers[name] for name in names if name not in constants)
        match step:
            case Group():
                made = _launch(step, launches[position], dying, owned, in_place)
            case CallOperator() | CallSubprogram():
                made = _with_known_layouts(_call(step, program), unknown, waiting)
            case ComputeNumber(name=name) | FindNumber(name=name):
                made = [step, *_with_known_layouts([], unknown - {name}, waiting)]
                unknown.discard(name)
            case CopyBack(target=target, source=source):
                made = [CopyInto(target=target, source=source)]
        taken = {line.source for line in made if isinstance(line, Reuse)}
        lines += made
        lines += [FreeIfNotReused(buffer=buffer) for buffer in dying if buffer.name not in taken]
    lines.append(Return(outputs=program.outputs))
    return tuple(lines)


def _take_inputs(program: Program) -> list[Line]:
    sizes: list[Line] = [
        DefineSymbol(name=fact.symbol.name, position=position)
        for position, fact in enumerate(program.input_sizes)
    ]
    tensors: list[Line] = [
        TakeInput(buffer=buffer, position=position)
        for position, buffer in enumerate(program.inputs, len(program.input_sizes))
    ]
    return sizes + tensors + [Constant(buffer=buffer) for buffer in program.constants]


def _launch(
    group: Group,
    launch: Launch,
    dying: tuple[Buffer, ...],
    owned: set[str],
    in_place: Mapping[str, str],
) -> list[Line]:
    """Allocate what the group writes, in the memory of a buffer that dies here where that is
    allowed.
    """
    lines: list[Line] = []
    renamed: dict[str, str] = {}
    written = {buffer.name for buffer in group.writes}
    free = {buffer.name for buffer in dying if buffer.name in owned} - written
    taken_over = dict(group.taken_over)
    for buffer in group.writes:
        offers = (read for written, read in group.reuses if written == buffer.name)
        source = in_place.get(buffer.name) or next((read for read in offers if read in free), None)
        if source is not None:
            free.discard(source)
            renamed[source] = buffer.name
            lines.append(Reuse(buffer=buffer, source=source))
        elif buffer.name in taken_over:
            base = BufferReference(taken_over[buffer.name])
            lines += [Allocate(buffer=buffer), CopyInto(target=buffer.name, source=base)]
        else:
            lines.append(Allocate(buffer=buffer))
    names = tuple(renamed.get(name, name) for name in launch.buffers)
    lines.append(CallKernel(launch=replace(launch, buffers=names)))
    return lines


def _call(step: CallOperator | CallSubprogram, program: Program) -> list[Line]:
    origins = program.origins.get(step.outputs[0].name, ()) if step.outputs else ()
    if isinstance(step, CallOperator) and step.out_operator:
        (out,) = step.outputs
        return [
            Allocate(buffer=out),
            CallExternOut(
                operator=step.out_operator,
                arguments=step.arguments,
                keywords=step.keywords,
                out=out.name,
                origins=origins,
            ),
        ]
    positions = step.results or ((0,) if step.outputs else ())
    names = tuple(None if p is None else step.outputs[p].name for p in positions)
    call: Line
    if isinstance(step, CallSubprogram):
        call = CallProgram(name=step.name, arguments=step.arguments, results=names, origins=origins)
    else:
        call = CallExtern(
            operator=step.operator,
            arguments=step.arguments,
            keywords=step.keywords,
            results=names,
            is_tuple=bool(step.results),
            origins=origins,
        )
    return [call, *(EnsureLayout(buffer=buffer) for buffer in step.outputs)]


def _with_known_layouts(
    lines: Sequence[Line], unknown: set[str], waiting: list[EnsureLayout]
) -> list[Line]:
    """`lines`, and those `waiting`, without those that see to a layout of sizes not found out yet:
    these wait.
    """
    ready: list[Line] = []
    found = [*waiting, *lines]
    waiting.clear()
    for line in found:
        if isinstance(line, EnsureLayout):
            sizes = (*line.buffer.layout.size, *line.buffer.layout.stride)
            if any(symbol.name in unknown for size in sizes for symbol in size.free()):
                waiting.append(line)
                continue
        ready.append(line)
    return ready


# Memory -------------------------------------------------------------------------------


def _buffers(schedule: Schedule) -> dict[str, Buffer]:
    """Every buffer by name, those that scheduling added among them."""
    buffers = schedule.program.buffers()
    for step in schedule.steps:
        if isinstance(step, Group):
            buffers.update((buffer.name, buffer) for buffer in step.writes)
    return buffers


def _owned_buffers(schedule: Schedule) -> set[str]:
    """Buffers whose memory the wrapper itself allocates, or a library call for it alone: only these
    may be overwritten by another.
    """
    owned = {b.name for step in schedule.steps if isinstance(step, Group) for b in step.writes}
    for step in schedule.steps:
        if isinstance(step, CallOperator) and (
            step.out_operator or facts(step.operator).gives_new_memory
        ):
            owned.update(buffer.name for buffer in step.outputs)
    inputs = {buffer.name for buffer in (*schedule.program.inputs, *schedule.program.constants)}
    aliased = {
        argument
        for step in schedule.steps
        if isinstance(step, CallOperator)
        for _, argument in step.aliases
    }
    return owned - inputs - aliased
