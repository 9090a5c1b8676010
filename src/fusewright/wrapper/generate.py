"""From a Schedule and its kernels to wrapper lines: every allocation, launch, call and last use, in
order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fusewright.ir.group import Group, Schedule, kept_buffers
from fusewright.ir.kernel import Kernel, Launch
from fusewright.ir.lines import (
    Allocate,
    CallChoice,
    CallExtern,
    CallExternOut,
    CallKernel,
    CallProgram,
    CallUserTriton,
    CopyInto,
    DefineChoice,
    DefineKernel,
    DefineSymbol,
    EnsureLayout,
    Free,
    FreeIfNotReused,
    Line,
    Return,
    Reuse,
    TakeConstant,
    TakeInput,
)
from fusewright.ir.program import (
    Buffer,
    BufferReference,
    CallOperator,
    CallSubprogram,
    CallUserKernel,
    CheckFact,
    ComputeNumber,
    CopyBack,
    Program,
    ReadItem,
    ReadSize,
    UnfilledMemory,
)
from fusewright.records import replace
from fusewright.wrapper.devices import name_devices
from fusewright.wrapper.scatters import scatter_in_place
from fusewright.wrapper.views import name_views

CAST = "aten.clone.default"
"""The call whose result is to be laid out as eager's is, whatever its argument: no surprise."""


def generate_lines(
    schedule: Schedule,
    kernels: Iterable[Kernel],
    launches: Mapping[int, Launch | CallChoice],
    slots: dict[str, str] | None = None,
    choices: Iterable[DefineChoice] = (),
) -> tuple[Line, ...]:
    """Write out `schedule` as lines. `launches` holds the launch of each group by its place among
    the steps, or the call of one of `choices`; `slots` the devices of the module.

    before                                 after
    ------                                 -----
    group gelu reads x writes y            Allocate(y)
                                           CallKernel(cpu_gelu_3f2a, x, y)
                                           FreeIfNotReused(x)
    """
    program = schedule.program
    lines: list[Line] = [*(DefineKernel(kernel=kernel) for kernel in kernels), *choices]
    lines += _take_inputs(program)
    buffers = _buffers(schedule)
    kept = kept_buffers(schedule.works)
    unknown = {fact.symbol.name for fact in program.sizes}
    unknown -= {fact.symbol.name for fact in program.input_sizes}
    waiting: list[EnsureLayout] = []
    for position, step in enumerate(schedule.steps):
        match step.work:
            case Group() as group if step.does_nothing:
                sources = dict(step.takes_over)
                lines += [Reuse(buffer=one, source=sources[one.name]) for one in group.writes]
            case Group() as group:
                lines += _launch(group, launches[position], dict(step.takes_over))
            case (CallOperator() | CallSubprogram()) as call:
                lines += _with_known_layouts(_call(call, program), unknown, waiting)
            case (ComputeNumber() | ReadSize() | ReadItem()) as statement:
                unknown.discard(statement.name)
                lines += [statement, *_with_known_layouts([], unknown, waiting)]
            case UnfilledMemory(outputs=outputs):
                lines += [Allocate(buffer=buffer) for buffer in outputs]
            case CallUserKernel() as call:
                launch = CallUserTriton(
                    name=call.name,
                    arguments=call.arguments,
                    writes=call.mutates,
                    is_behind_writes=call.is_behind_writes,
                    origins=call.origins,
                )
                lines.append(launch)
            case CheckFact() as statement:
                lines.append(statement)
            case CopyBack(target=target, source=source):
                lines.append(CopyInto(target=target, source=source))
        lines += [
            Free(name=name) if name in kept else FreeIfNotReused(buffer=buffers[name])
            for name in step.last_uses
        ]
    lines.append(Return(outputs=program.outputs))
    return name_devices(name_views(scatter_in_place(lines)), slots)


def _take_inputs(program: Program) -> list[Line]:
    sizes: list[Line] = [
        DefineSymbol(name=fact.symbol.name, position=position)
        for position, fact in enumerate(program.input_sizes)
    ]
    tensors: list[Line] = [
        TakeInput(buffer=buffer, position=position)
        for position, buffer in enumerate(program.inputs, len(program.input_sizes))
    ]
    return sizes + tensors + [TakeConstant(buffer=buffer) for buffer in program.constants]


def _launch(group: Group, launch: Launch | CallChoice, takes_over: Mapping[str, str]) -> list[Line]:
    """Allocate the buffers that a group writes, or take over memory for them; a buffer that begins
    as another, whose memory is still needed, is copied from it.
    """
    lines: list[Line] = []
    bases = dict(group.taken_over)
    renamed = {source: buffer for buffer, source in takes_over.items()}
    for buffer in group.writes:
        if buffer.name in takes_over:
            lines.append(Reuse(buffer=buffer, source=takes_over[buffer.name]))
        elif buffer.name in bases:
            base = BufferReference(bases[buffer.name])
            lines += [Allocate(buffer=buffer), CopyInto(target=buffer.name, source=base)]
        else:
            lines.append(Allocate(buffer=buffer))
    names = tuple(renamed.get(name, name) for name in launch.buffers)
    if isinstance(launch, CallChoice):
        return [*lines, replace(launch, buffers=names)]
    return [*lines, CallKernel(launch=replace(launch, buffers=names))]


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
    name = step.name if isinstance(step, CallSubprogram) else step.operator
    may_copy = isinstance(step, CallOperator) and (name == CAST or step.reads_moved)
    counted = "" if may_copy else name
    tensors = (buffer for buffer in step.outputs if not buffer.layout.is_opaque)
    ensured = (EnsureLayout(buffer=buffer, operator=counted, origins=origins) for buffer in tensors)
    return [call, *ensured]


def _with_known_layouts(
    lines: Sequence[Line], unknown: set[str], waiting: list[EnsureLayout]
) -> list[Line]:
    """`lines`, and those `waiting`, without those that see to a layout of sizes not found out yet:
    these wait.
    """
    ready: list[Line] = []
    candidates = [*waiting, *lines]
    waiting.clear()
    for line in candidates:
        if isinstance(line, EnsureLayout):
            sizes = (*line.buffer.layout.size, *line.buffer.layout.stride)
            if any(symbol.name in unknown for size in sizes for symbol in size.free()):
                waiting.append(line)
                continue
        ready.append(line)
    return ready


def _buffers(schedule: Schedule) -> dict[str, Buffer]:
    """Every buffer by name, those that scheduling added among them."""
    buffers = schedule.program.buffers()
    for work in schedule.works:
        if isinstance(work, Group):
            buffers.update((buffer.name, buffer) for buffer in work.writes)
    return buffers
