"""The legality of programs, groups and schedules: run at every stage border in tests.

Invariants of a program, each checked here:

1.  Names of inputs, constants and results are unique, and defined before they are used.
2.  A layout has as many strides as sizes; sizes are not known to be negative; only the program's
    size symbols occur. An opaque value has no sizes, and is given and taken by subprograms alone.
3.  Loops carry extents; a body's loops are its results' dimensions (a scatter's loops are free).
4.  The type of a body's value is its result's; argmax and argmin give i64; any and all take bool;
    Welford has two results. A scan's result is converted to its output's type.
5.  A maximum or minimum is not taken of nothing.
6.  A scatter's base has its result's layout, and is not read after it.
7.  Operands name defined buffers; a view stays within the memory and keeps the element's width.
8.  An extern call's `results` place each of its outputs once; an out-variant has one output;
    `aliases` pair outputs with defined buffers.
9.  A copy's target is an input. Mutations pair results with inputs. What is released is an input.
10. Values are legal (the table in `verify_values`), every access not proved out of bounds. A body
    loads from its results' device.

Of a group:

11. It reads exactly `reads`, writes exactly `writes`, all on one device; `reuses` pairs one written
    with one read buffer of equal width.
12. A stage loads memory, or locals that an earlier stage filled. A row's index uses inner loops.
13. A reduction has scalar targets of the type that its kind gives, one, or two for Welford. In a
    stage without inner loops it is the reduction of one element.
14. A store to memory mentions every outer loop of more than one point: no two points write the
    same element. A scan is in a stage with inner loops. What is gathered along outer loops mentions
    all but the innermost of these, which are the same for all of a group, and every inner loop; it
    has a neutral element and the type of a reduction, and nothing else of the group reads it.
15. Its stores are not known to leave an element of a buffer or local unwritten.

Of a schedule:

16. Its steps read what is defined before them, and define all results.
17. A buffer is not used behind its last use, nor once another has taken over its memory, which the
    step offers; results have no last use. Memory that is known by several names ends with the last.

A broken one raises `MalformedProgram`: what is wrong, and the rows around it, the offending one
marked. The `Accesses` that the doors return count what is proved of loads and stores, and why, and
tell those of which nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from fusewright.errors import MalformedProgram
from fusewright.ir.bounds import Verdict, judge_access
from fusewright.ir.canonical import CanonicalNames, canonical_group
from fusewright.ir.coverage import Coverage, judge_coverage
from fusewright.ir.dtype import DType
from fusewright.ir.forms import (
    buffers_overwritten,
    buffers_read,
    indices_in,
)
from fusewright.ir.group import (
    Accumulate,
    Gather,
    Group,
    Reduce,
    ScanStore,
    Schedule,
    ScheduledStep,
    Stage,
    Store,
    action_roots,
)
from fusewright.ir.index import Index, LoopSymbol, Symbol, contiguous_strides, product
from fusewright.ir.program import (
    OPAQUE,
    Body,
    Buffer,
    BufferReference,
    CallOperator,
    CallSubprogram,
    CallUserKernel,
    CheckFact,
    ComputedBuffer,
    ComputeNumber,
    CopyBack,
    Layout,
    LibraryCall,
    ListOf,
    Operand,
    Pointwise,
    Program,
    ReadItem,
    ReadSize,
    Reduction,
    Scan,
    Scatter,
    Statement,
    ViewReference,
    operand_buffers,
)
from fusewright.ir.proof import proves
from fusewright.ir.relations import below
from fusewright.ir.text import (
    action_row,
    group_rows,
    group_sizes,
    render_values,
    stage_rows,
    statement_rows,
    step_rows,
)
from fusewright.ir.text_parts import (
    layout_indices,
    operand_indices,
    print_buffer,
    print_operand,
)
from fusewright.ir.value import Constant, Load, Value, postorder
from fusewright.ir.verify_actions import (
    SCATTER_MODES,
    different_types,
    reduction_types,
    scan_types,
    wrong_action,
)
from fusewright.ir.verify_values import Accesses, Memory, ValueScope, check_values
from fusewright.records import replace


def verify_program(program: Program) -> Accesses:
    """Check every invariant of a program; what is known of its accesses."""
    accesses = Accesses()
    sizes = frozenset(fact.symbol for fact in program.sizes)
    defined: dict[str, Buffer] = {}
    for buffer in (*program.inputs, *program.constants):
        reason = _define(buffer, defined, sizes)
        require(reason, partial(_row, print_buffer, buffer))
    inputs = {buffer.name for buffer in program.inputs}
    consumed: dict[str, str] = {}
    for statement in program.statements:
        _verify_statement(statement, defined, sizes, inputs, consumed, accesses)
    for operand in program.outputs:
        reason = _operand(operand, defined, sizes)
        require(reason, partial(_row, _return_row, operand))
    results = operand_buffers(program.outputs)
    for result, target in program.mutations:
        legal = result in results and target in inputs
        reason = None if legal else "a mutation pairs a result with an input"
        require(reason, partial(_row, "mutation {} of {}".format, result, target))
    for name in sorted(program.released_inputs - inputs):
        require(f"{name} is no input", partial(_row, "release {}".format, name))
    return accesses


def verify_group(group: Group, program: Program | None = None) -> Accesses:
    """Check every invariant of a group; with its program, that its buffers are the program's."""
    accesses = Accesses()
    head = partial(_first_row, group_rows, group)
    require(_group_head(group, program), head)
    memory = {
        buffer.name: Memory(buffer.layout.dtype, buffer.layout.span)
        for buffer in (*group.reads, *group.writes)
    }
    writable = {buffer.name for buffer in group.writes}
    local_names = {local.name for local in group.locals}
    locals_ = {local.name: Memory(local.dtype, product(local.size)) for local in group.locals}
    sizes = frozenset(group_sizes(group))
    filled: set[str] = set()
    for stage in group.stages:
        loadable = memory | {name: locals_[name] for name in filled}
        scope = ValueScope(loadable, (*group.outer, *stage.inner), sizes, accesses)
        rows = partial(stage_rows, stage)
        _verify_values(action_roots(*stage.actions), scope, rows)
        for action in stage.actions:
            reason = wrong_action(action, stage, group, memory, locals_, writable, scope)
            require(reason, rows, partial(action_row, stage, action))
        filled |= _filled(stage) & local_names
    require(_unwritten(group, accesses), head)
    return accesses


def verify_renamed_group(group: Group, canonical: CanonicalNames) -> Accesses:
    """Check `group` under canonical names, its buffers laid out as they are: what its kernel is
    written from.
    """
    renamed = canonical_group(group, canonical)
    used = {own: named.index for named, own in canonical.sizes}
    symbols = {own: used.get(own, own.renamed(f"{own}_unused").index) for own in group_sizes(group)}
    layouts = {
        canonical.names.buffer(buffer.name): _substituted(buffer.layout, symbols)
        for buffer in (*group.reads, *group.writes)
    }

    def with_layouts(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(replace(buffer, layout=layouts[buffer.name]) for buffer in buffers)

    reads, writes = with_layouts(renamed.reads), with_layouts(renamed.writes)
    # A buffer that is only taken over is no argument of the kernel, and has no canonical name.
    read_names = {buffer.name for buffer in reads}
    reuses = tuple(pair for pair in renamed.reuses if pair[1] in read_names)
    return verify_group(replace(renamed, reads=reads, writes=writes, reuses=reuses))


def _substituted(layout: Layout, symbols: Mapping[Symbol, Index]) -> Layout:
    return replace(
        layout,
        size=tuple(index.substitute(symbols) for index in layout.size),
        stride=tuple(index.substitute(symbols) for index in layout.stride),
        offset=layout.offset.substitute(symbols),
    )


def verify_schedule(schedule: Schedule) -> Accesses:
    """Check the program, each group, and that the steps define and use buffers in order; what is
    known of the groups' accesses.
    """
    program = schedule.program
    verify_program(program)
    accesses = Accesses()
    layouts = program.buffers()
    defined = {buffer.name for buffer in (*program.inputs, *program.constants)}
    ended: set[str] = set()
    aliases: dict[str, str] = {}
    for step in schedule.steps:
        if isinstance(step.work, Group):
            accesses.add(verify_group(step.work, program))
            used = [buffer.name for buffer in step.work.reads]
            defines = [buffer.name for buffer in step.work.writes]
        else:
            used = list(_used(step.work))
            defines = [buffer.name for buffer in step.work.outputs]
        rows = partial(_first_row, step_rows, step.work)
        missing = [name for name in used if name not in defined and name not in defines]
        require(f"{missing[0]} is used before it is defined" if missing else None, rows)
        stray = [name for name in defines if name not in layouts]
        require(f"{stray[0]} is no buffer of the program" if stray else None, rows)
        if isinstance(step.work, CallOperator):
            aliases |= dict(step.work.aliases)
        late = [name for name in _memories(used, aliases) if name in ended]
        require(f"{late[0]} is used after its last use" if late else None, rows)
        defined.update(defines)
        require(_lifetimes(step, defined, ended), rows)
    results = operand_buffers(program.outputs)
    missing = [name for name in results if name not in defined]
    require(f"the result {missing[0]} is never computed" if missing else None, _return_rows)
    late = [name for name in _memories(results, aliases) if name in ended]
    require(f"{late[0]} is returned after its last use" if late else None, _return_rows)
    return accesses


def _memories(names: Iterable[str], aliases: Mapping[str, str]) -> Iterator[str]:
    """Buffers, and those that they are aliases of."""
    for name in names:
        memory: str | None = name
        while memory is not None:
            yield memory
            memory = aliases.get(memory)


def _lifetimes(step: ScheduledStep, defined: set[str], ended: set[str]) -> str | None:
    """Invariant 17. `ended` gets the buffers whose memory is freed or taken over with a step."""
    offers = step.work.reuses if isinstance(step.work, Group) else ()
    for written, read in step.takes_over:
        if (written, read) not in offers:
            return f"{written} takes over {read}, which the step does not offer"
    for name in (*(read for _, read in step.takes_over), *step.last_uses):
        if name not in defined:
            return f"{name} ends before it is defined"
        if name in ended:
            return f"{name} ends twice"
        ended.add(name)
    return None


# Statements ---------------------------------------------------------------------------------------


def _verify_statement(
    statement: Statement,
    defined: dict[str, Buffer],
    sizes: frozenset[Symbol],
    inputs: set[str],
    consumed: dict[str, str],
    accesses: Accesses,
) -> None:
    """Check one statement against what was defined before it, then add what it defines."""
    rows = partial(statement_rows, statement)
    used = _used(statement)
    for name in used:
        if name in consumed:
            require(f"{name} was taken over by {consumed[name]}", rows)
    match statement:
        case ComputedBuffer(outputs=outputs, body=body):
            layouts = {name: defined[name].layout for name in used if name in defined}
            memory = {name: Memory(own.dtype, own.span) for name, own in layouts.items()}
            over = body.reduction_loops if isinstance(body, Reduction) else ()
            scope = ValueScope(memory, (*body.loops, *over), sizes, accesses)
            _verify_values(_body_roots(body), scope, rows)
            require(_body(body, outputs, defined, scope), rows)
            require(why_not_on_one_device(outputs, map(defined.get, used)), rows)
            if isinstance(body, Scatter):
                consumed[body.base] = outputs[0].name
        case CopyBack(target=target, source=source):
            reason = None if target in inputs else f"{target} is no input"
            require(reason or _operand(source, defined, sizes), rows)
        case CallOperator() | CallSubprogram():
            require(_call(statement, defined, sizes), rows)
        case CallUserKernel():
            unknown = [name for name in statement.mutates if name not in defined]
            require(f"{unknown[0]} is not defined" if unknown else None, rows)
            require(_operand(ListOf(statement.arguments), defined, sizes), rows)
        case ComputeNumber() | ReadSize() | ReadItem() | CheckFact():
            operands: list[Operand] = [BufferReference(name) for name in buffers_read(statement)]
            operands += indices_in(statement)
            require(_operand(ListOf(tuple(operands)), defined, sizes), rows)
    for buffer in statement.outputs:
        require(_define(buffer, defined, sizes), rows)
    if not isinstance(statement, CallSubprogram):
        read = () if _takes_packed_weights(statement) else used
        names = (*read, *(buffer.name for buffer in statement.outputs))
        opaque = [name for name in names if defined[name].layout.is_opaque]
        require(f"{opaque[0]} is opaque" if opaque else None, rows)


def _define(buffer: Buffer, defined: dict[str, Buffer], sizes: frozenset[Symbol]) -> str | None:
    if buffer.name in defined:
        return f"{buffer.name} is defined twice"
    defined[buffer.name] = buffer
    return _layout(buffer.layout, sizes)


def why_not_on_one_device(writes: Iterable[Buffer], reads: Iterable[Buffer | None]) -> str | None:
    """Why one kernel cannot touch all of these, if they lie on several devices. It is given single
    numbers of the CPU by value.
    """
    devices = {buffer.layout.device for buffer in writes}
    for buffer in reads:
        if buffer is not None and not all(map(buffer.layout.is_number_for, devices)):
            devices.add(buffer.layout.device)
    return f"one kernel for {' and '.join(sorted(devices))}" if len(devices) > 1 else None


def _layout(layout: Layout, sizes: frozenset[Symbol]) -> str | None:
    if len(layout.size) != len(layout.stride):
        return f"{len(layout.size)} sizes but {len(layout.stride)} strides"
    if layout.is_opaque and layout != OPAQUE:
        return "an opaque value has no sizes"
    for size in layout.size:
        if proves(below(size, 0)):
            return f"a size of {size}"
    unknown = {s for index in layout_indices(layout) for s in index.free()} - sizes
    if unknown:
        return f"{', '.join(sorted(map(str, unknown)))} is no size of the program"
    return None


def _body_roots(body: Body) -> tuple[Value, ...]:
    return (*body.indirect, body.value) if isinstance(body, Scatter) else (body.value,)


def _body(
    body: Body, outputs: tuple[Buffer, ...], defined: dict[str, Buffer], scope: ValueScope
) -> str | None:
    reason = different_loops(scope.loops)
    if reason is not None:
        return reason
    if isinstance(body, Scatter):
        return _scatter(body, outputs, defined, scope)
    extents = tuple(symbol.extent for symbol in body.loops)
    for output in outputs:
        if output.layout.size != extents:
            return f"the loops do not run over {output.name}"
    match body:
        case Pointwise():
            wanted: tuple[DType, ...] = (body.value.dtype,)
        case Scan(kind=kind, along=along):
            if along not in body.loops:
                return f"{along} is none of the loops"
            return scan_types(kind, body.value.dtype, outputs[0].layout.dtype)
        case Reduction(kind=kind, reduction_loops=over):
            types = reduction_types(kind, body.value.dtype, over)
            if isinstance(types, str):
                return types
            wanted = types
    return different_types(wanted, tuple(output.layout.dtype for output in outputs))


def _scatter(
    body: Scatter, outputs: tuple[Buffer, ...], defined: dict[str, Buffer], scope: ValueScope
) -> str | None:
    base = defined.get(body.base)
    if base is None:
        return f"{body.base} is not defined here"
    if len(outputs) != 1 or outputs[0].layout != base.layout:
        return f"the result is not laid out as {body.base}"
    if body.mode not in SCATTER_MODES:
        return f"{body.mode} is none of {', '.join(SCATTER_MODES)}"
    wrong = different_types((body.value.dtype,), (base.layout.dtype,))
    return wrong or scope.access(body.base, body.index, indirect=body.indirect)


def different_loops(loops: Iterable[LoopSymbol]) -> str | None:
    """Why these cannot be loops around one point: one has no extent, or two have one name."""
    seen: set[str] = set()
    for symbol in loops:
        if not isinstance(symbol, LoopSymbol):
            return f"{symbol} is no loop variable: it has no extent"
        if symbol.name in seen:
            return f"two loops are named {symbol}"
        seen.add(symbol.name)
    return None


def _call(call: LibraryCall, defined: dict[str, Buffer], sizes: frozenset[Symbol]) -> str | None:
    keywords = call.keywords if isinstance(call, CallOperator) else ()
    for operand in (*call.arguments, *(value for _, value in keywords)):
        reason = _operand(operand, defined, sizes)
        if reason is not None:
            return reason
    places = [place for place in call.results if place is not None]
    if call.results and sorted(places) != list(range(len(call.outputs))):
        results = list(call.results)
        return f"the results {results} do not place {len(call.outputs)} outputs once each"
    return _operator(call, defined) if isinstance(call, CallOperator) else None


def _operator(call: CallOperator, defined: dict[str, Buffer]) -> str | None:
    for name in call.mutates:
        if name not in defined:
            return f"{name} is not defined here"
    outputs = {buffer.name for buffer in call.outputs}
    for output, argument in call.aliases:
        if output not in outputs or argument not in defined:
            return f"{output} cannot share the memory of {argument}"
    if call.out_operator and len(call.outputs) != 1:
        return f"{call.out_operator} writes one output, not {len(call.outputs)}"
    return None


def _operand(operand: Operand, defined: dict[str, Buffer], sizes: frozenset[Symbol]) -> str | None:
    for name in operand_buffers([operand]):
        if name not in defined:
            return f"{name} is not defined here"
    unknown = {s for index in operand_indices([operand]) for s in index.free()} - sizes
    if unknown:
        return f"{', '.join(sorted(map(str, unknown)))} is no size of the program"
    match operand:
        case ViewReference(name=name, layout=layout):
            memory = defined[name].layout
            if layout.dtype.bits != memory.dtype.bits:
                return f"a view of {memory.dtype} as {layout.dtype}, of another width"
            if any(size == 0 for size in layout.size):
                return None
            last = layout.span - 1
            if judge_access(last, memory.span, ()) is Verdict.OUTSIDE:
                return f"the view leaves the {memory.span} elements of {name}"
            return _layout(layout, sizes)
        case ListOf(items=items):
            return next(filter(None, (_operand(item, defined, sizes) for item in items)), None)
        case _:
            return None


def _takes_packed_weights(statement: Statement) -> bool:
    """Whether it is a library call of oneDNN's own operators, whose weights may be opaque."""
    return isinstance(statement, CallOperator) and statement.operator.startswith("mkldnn.")


def _used(statement: Statement) -> set[str]:
    """The names of buffers that a statement reads."""
    match statement:
        case ComputedBuffer(body=body):
            loads = postorder(_body_roots(body))
            used = {value.buffer for value in loads if isinstance(value, Load)}
            return used | ({body.base} if isinstance(body, Scatter) else set())
        case CopyBack(source=source):
            return set(operand_buffers([source]))
        case _:
            return {*buffers_read(statement), *buffers_overwritten(statement)}


# Groups -------------------------------------------------------------------------------------------


def _group_head(group: Group, program: Program | None) -> str | None:
    """Invariant 11, and that names are unique and buffers the program's."""
    reads = {buffer.name: buffer for buffer in group.reads}
    writes = {buffer.name: buffer for buffer in group.writes}
    local_names = [local.name for local in group.locals]
    names = [*(reads | writes), *local_names]
    if len(set(names)) != len(names) or len(reads) != len(group.reads):
        return "a name is defined twice"
    loaded, stored, combined = _touched(group)
    loaded -= set(local_names)
    stored -= set(local_names)
    bases = {read for _, read in group.taken_over}
    if loaded - combined != set(reads) - combined - bases:
        return f"it loads {_names_text(loaded)}, but reads {_names_text(reads)}"
    if stored != set(writes):
        return f"it stores {_names_text(stored)}, but writes {_names_text(writes)}"
    apart = why_not_on_one_device(group.writes, group.reads)
    if apart is not None:
        return apart
    for written, read in group.reuses:
        if written not in writes or read not in reads:
            return f"{written} cannot reuse {read}: one is not written, or the other not read"
        if writes[written].layout.dtype.bits != reads[read].layout.dtype.bits:
            return f"{written} cannot reuse {read}: their elements differ in width"
    if program is not None:
        buffers = program.buffers()
        for buffer in (*group.reads, *group.writes):
            if buffers.get(buffer.name) != buffer:
                return f"{buffer.name} is not the program's"
    return different_loops(group.outer) or _nested_loops(group)


def _nested_loops(group: Group) -> str | None:
    reasons = (different_loops((*group.outer, *stage.inner)) for stage in group.stages)
    return next(filter(None, reasons), None)


def _touched(group: Group) -> tuple[set[str], set[str], set[str]]:
    """Names loaded; stored; combined into (which may, but need not, stand among the reads)."""
    loaded: set[str] = set()
    stored: set[str] = set()
    combined: set[str] = set()
    for stage in group.stages:
        for value in postorder(action_roots(*stage.actions)):
            if isinstance(value, Load):
                loaded.add(value.buffer)
        for action in stage.actions:
            if isinstance(action, Reduce):
                stored.update(action.targets)
            else:
                stored.add(action.buffer)
            if isinstance(action, Accumulate):
                combined.add(action.buffer)
    return loaded, stored, combined


def _unwritten(group: Group, accesses: Accesses) -> str | None:
    """Invariant 15: why some element of what the group writes is left as it was. What is combined
    into was written before.
    """
    actions = [action for stage in group.stages for action in stage.actions]
    combined = {action.buffer for action in actions if isinstance(action, Accumulate)}
    stores: dict[str, list[Index]] = {}
    for action in actions:
        if isinstance(action, Store | ScanStore | Gather) and action.buffer not in combined:
            stores.setdefault(action.buffer, []).append(action.index)
    layouts = {buffer.name: buffer.layout for buffer in group.writes}
    for local in group.locals:
        strides = contiguous_strides(local.size)
        layouts[local.name] = Layout(dtype=local.dtype, size=local.size, stride=strides)
    for name, indices in stores.items():
        match judge_coverage(indices, layouts[name]):
            case Coverage.WHOLE:
                accesses.covered += 1
            case Coverage.PARTIAL:
                return f"not every element of {name} is written"
            case Coverage.UNKNOWN:
                accesses.not_covered += 1
                accesses.rows += [f"{name}[{index}] is stored" for index in indices]
    return None


def _filled(stage: Stage) -> set[str]:
    """Names that a stage stores or gathers into."""
    names: set[str] = set()
    for action in stage.actions:
        names.update(action.targets if isinstance(action, Reduce) else (action.buffer,))
    return names


# Messages -----------------------------------------------------------------------------------------


Rows = Callable[[], list[str]]
"""Writes the rows that a message shows. Only a broken rule has any written: that took a third of
the time of checking.
"""


def _verify_values(roots: tuple[Value, ...], scope: ValueScope, rows: Rows) -> None:
    wrong = check_values(roots, scope)
    if wrong is not None:
        value, reason = wrong
        require(reason, rows, partial(_value_row, roots, value))


def _value_row(roots: tuple[Value, ...], value: Value) -> str:
    """The beginning of a value's row; constants have none."""
    return "" if isinstance(value, Constant) else f"{render_values(roots).operand(value)} ="


def _row(write: Callable[..., str], *arguments: Any) -> list[str]:
    return [write(*arguments)]


def _first_row(write: Callable[[Any], list[str]], argument: Any) -> list[str]:
    return write(argument)[:1]


def _return_row(operand: Operand) -> str:
    return f"return {print_operand(operand)}"


def _return_rows() -> list[str]:
    return ["return"]


def require(reason: str | None, rows: Rows, marked: Callable[[], str] = str) -> None:
    """Raise `reason`, if there is one, with the rows around the one that begins as `marked`."""
    if reason is None:
        return
    written, beginning = rows(), marked()
    place = next((n for n, row in enumerate(written) if row.strip().startswith(beginning)), 0)
    first, last = max(0, place - 4), place + 4
    shown = [
        f"  {'>' if number == place else ' '} {row}"
        for number, row in enumerate(written)
        if number == 0 or first <= number <= last
    ]
    raise MalformedProgram("\n".join([reason, *shown]))


def _names_text(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
