"""The text form of programs, groups and schedules; `parse` reads it back.

Bodies are printed in single assignment: each value gets a name (`t0`, `t1`, … in the order of
evaluation; `k0`, … for loaded indices) that is local to its body, so equal bodies print equally
whatever table made them. Constants stand where they are used: `mul t0, 0.5`; with their type,
`f32(0.5)`, where no other argument tells it.

Every printer takes a `Names`, through which canonical renaming prints a group under other names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fusewright.ir.forms import print_form
from fusewright.ir.group import (
    Accumulate,
    Action,
    Gather,
    Group,
    Local,
    Reduce,
    ScanStore,
    Schedule,
    ScheduledStep,
    Stage,
    StepWork,
    Store,
    action_roots,
)
from fusewright.ir.index import Index, Symbol
from fusewright.ir.ops import OPERATIONS, Result
from fusewright.ir.origin import Origin
from fusewright.ir.program import (
    Body,
    ComputedBuffer,
    Pointwise,
    Program,
    Reduction,
    Scan,
    Scatter,
    Statement,
)
from fusewright.ir.text_parts import (
    OWN,
    Names,
    layout_indices,
    print_buffer,
    print_list,
    print_loops,
    print_operand,
    print_size,
    print_symbol,
    print_wrapped,
    sizes_in,
)
from fusewright.ir.value import (
    Apply,
    Cast,
    Constant,
    IndexValue,
    Indirect,
    Load,
    Masked,
    Random,
    Value,
    postorder,
)
from fusewright.records import record

# Values -------------------------------------------------------------------------------------------


@record
class ValueRows:
    """The values of one body, one a row, and how to refer to them."""

    rows: tuple[str, ...]
    names: Names
    """The names, with loaded indices numbered within this body."""

    _operands: Mapping[int, str]

    def operand(self, value: Value) -> str:
        """The name of a value's row, or the constant itself with its type."""
        return self._operands[id(value)]


def render_values(roots: tuple[Value, ...], names: Names = OWN) -> ValueRows:
    """Rows for every value below `roots`, each after what it is made from."""
    symbols = dict(names.symbols)
    inner = Names(names.buffers, symbols)
    operands: dict[int, str] = {}
    rows: list[str] = []
    temporaries = loaded = 0
    for value in postorder(roots):
        match value:
            case Constant():
                operands[id(value)] = f"{value.dtype}({value.value!r})"
                continue
            case Indirect(symbol=symbol):
                name = f"k{loaded}"
                loaded += 1
                if symbol.name != name:
                    symbols[symbol] = symbol.renamed(name).index
            case _:
                name = f"t{temporaries}"
                temporaries += 1
        rows.append(f"{name} = {_value(value, operands, inner)}")
        operands[id(value)] = name
    return ValueRows(tuple(rows), inner, operands)


def _value(value: Value, operands: Mapping[int, str], names: Names) -> str:
    match value:
        case Load(buffer=buffer, index=index):
            return f"load {names.buffer(buffer)}[{names.index(index)}]"
        case IndexValue(index=index, dtype=dtype):
            return f"index {names.index(index)}: {dtype}"
        case Apply():
            return f"{value.operation} {', '.join(_arguments(value, operands))}"
        case Cast(argument=argument, dtype=dtype):
            return f"cast {operands[id(argument)]}: {dtype}"
        case Masked(mask=mask, value=inner, otherwise=otherwise):
            return f"masked {operands[id(mask)]}, {operands[id(inner)]}, {otherwise.value!r}"
        case Indirect(value=inner, size=size, wrap=wrap, check=check):
            flags = (" wrap" if wrap else "") + (" check" if check else "")
            return f"indirect {operands[id(inner)]} below {names.index(size)}{flags}"
        case Random(kind=kind, seed=seed, position=position, dtype=dtype):
            return f"random {kind} {operands[id(seed)]} at {names.index(position)}: {dtype}"
        case Constant():
            raise AssertionError("constants stand where they are used")


def _arguments(value: Apply, operands: Mapping[int, str]) -> list[str]:
    """Constants lose their type where another argument of the same type tells it."""
    skipped = 1 if OPERATIONS[value.operation].result is Result.SECOND else 0
    is_told = any(not isinstance(argument, Constant) for argument in value.arguments[skipped:])
    return [
        repr(argument.value)
        if isinstance(argument, Constant) and is_told and position >= skipped
        else operands[id(argument)]
        for position, argument in enumerate(value.arguments)
    ]


# Programs -----------------------------------------------------------------------------------------


def print_program(program: Program, *, origins: bool = False) -> str:
    """The whole program; with `origins`, comments tell what statements compute for the user."""
    head = [*map(print_size, program.sizes), *map(print_buffer, program.inputs)]
    rows = [print_wrapped(f"program {program.name}(", head, ")", indentation="")]
    rows += [f"  constant {print_buffer(constant)}" for constant in program.constants]
    released = [buffer.name for buffer in program.inputs if buffer.name in program.released_inputs]
    rows += [print_wrapped("release ", released, "", "  ")] if released else []
    for statement in program.statements:
        if origins and statement.outputs:
            rows += _comments(program.origins.get(statement.outputs[0].name, ()), "  ")
        rows += (f"  {row}" for row in statement_rows(statement))
    rows += [f"  mutation {result} of {target}" for result, target in program.mutations]
    rows.append(print_wrapped("return ", [print_operand(o) for o in program.outputs], "", "  "))
    return "\n".join(rows) + "\n"


def statement_rows(statement: Statement) -> list[str]:
    """A statement's head, then its body's rows, indented."""
    match statement:
        case ComputedBuffer(outputs=outputs, body=body):
            head, rows = _body(body)
            names = ", ".join(map(print_buffer, outputs))
            return [f"{names} = {head}", *(f"  {row}" for row in rows)]
        case _:
            return [print_form(statement)]


def _body(body: Body) -> tuple[str, list[str]]:
    loops = print_loops(body.loops)
    roots = (*body.indirect, body.value) if isinstance(body, Scatter) else (body.value,)
    values = render_values(roots)
    result = f"yield {values.operand(body.value)}"
    match body:
        case Pointwise():
            head = f"pointwise {loops}"
        case Reduction(kind=kind, reduction_loops=over):
            head = f"reduce {kind} {loops} over {print_loops(over)}"
        case Scan(kind=kind, along=along):
            head = f"scan {kind} {loops} along {along}"
        case Scatter(mode=mode, base=base, index=index):
            head = f"scatter {mode} {loops} into {base}"
            result = f"{result} at {values.names.index(index)}"
    return head, [*values.rows, result]


def _comments(origins: Iterable[Origin], indentation: str) -> list[str]:
    rows = []
    for origin in dict.fromkeys(origins):
        text = f"  {origin.text}" if origin.text else ""
        rows.append(f"{indentation}# {origin}{text}")
    return rows


# Groups -------------------------------------------------------------------------------------------


def print_group(group: Group, *, origins: bool = False) -> str:
    """The whole group; with `origins`, comments tell what it computes for the user."""
    rows = [*(_comments(group.origins, "") if origins else ()), *group_rows(group)]
    return "\n".join(rows) + "\n"


def group_rows(group: Group) -> list[str]:
    """A group's head, the symbols, buffers and locals it uses, then its stages, indented."""
    rows = [f"group {group.name} {print_loops(group.outer)}"]
    rows += [f"  size {print_symbol(symbol)}" for symbol in group_sizes(group)]
    rows += [f"  read {print_buffer(buffer)}" for buffer in group.reads]
    rows += [f"  write {print_buffer(buffer)}" for buffer in group.writes]
    rows += [f"  reuse {read} for {written}" for written, read in group.reuses]
    return rows + [f"  {row}" for row in work_rows(group)]


def commented_loops(group: Group) -> str:
    """A group as comments of Python, which stand above the source of its kernel."""
    return "".join(f"# {row}\n" for row in group_rows(group))


def work_rows(group: Group, names: Names = OWN, stages: Sequence[Names] = ()) -> list[str]:
    """The locals and stages of a group, without its head: what its kernel does. `stages`: the names
    in each stage, where they differ.
    """
    rows = [f"local {_local(local, names)}" for local in group.locals]
    for stage, own in zip(group.stages, stages or (names,) * len(group.stages), strict=True):
        rows += stage_rows(stage, own)
    return rows


def stage_rows(stage: Stage, names: Names = OWN) -> list[str]:
    """A stage's head, then its values and its actions: all values are those before the actions."""
    values = render_values(action_roots(*stage.actions), names)
    head = f"stage over {print_loops(stage.inner, names)}" if stage.inner else "stage"
    actions = [_action(action, values) for action in stage.actions]
    return [head, *(f"  {row}" for row in (*values.rows, *actions))]


def action_row(stage: Stage, action: Action) -> str:
    """The row of one action within `stage_rows(stage)`."""
    return _action(action, render_values(action_roots(*stage.actions)))


def group_sizes(group: Group) -> list[Symbol]:
    """The size symbols that occur in a group, by name."""
    loaded: set[Symbol] = set()
    indices = [symbol.extent for symbol in group.outer]
    indices += [index for local in group.locals for index in local.size]
    for buffer in (*group.reads, *group.writes):
        indices += layout_indices(buffer.layout)
    for stage in group.stages:
        indices += [symbol.extent for symbol in stage.inner]
        indices += [action.index for action in stage.actions if not isinstance(action, Reduce)]
        for value in postorder(action_roots(*stage.actions)):
            indices += value_indices(value)
            if isinstance(value, Indirect):
                loaded.add(value.symbol)
    return [symbol for symbol in sizes_in(indices) if symbol not in loaded]


def value_indices(value: Value) -> tuple[Index, ...]:
    """The index expressions that stand in a value itself."""
    match value:
        case Load(index=index) | IndexValue(index=index) | Random(position=index):
            return (index,)
        case Indirect(size=size):
            return (size,)
        case _:
            return ()


def _local(local: Local, names: Names) -> str:
    size = print_list(local.size, names) if local.size else ""
    return f"{names.buffer(local.name)}: {local.dtype}{size}"


def _action(action: Action, values: ValueRows) -> str:
    names = values.names
    value = values.operand(action.value)
    match action:
        case Store(buffer=buffer, index=index):
            return f"store {names.buffer(buffer)}[{names.index(index)}] = {value}"
        case Reduce(targets=targets, kind=kind):
            return f"reduce {', '.join(map(names.buffer, targets))} = {kind} {value}"
        case Accumulate(buffer=buffer, index=index, mode=mode):
            return f"accumulate {mode} {names.buffer(buffer)}[{names.index(index)}] = {value}"
        case ScanStore(buffer=buffer, index=index, kind=kind):
            return f"scan {names.buffer(buffer)}[{names.index(index)}] = {kind} {value}"
        case Gather(buffer=buffer, index=index, kind=kind):
            return f"gather {names.buffer(buffer)}[{names.index(index)}] = {kind} {value}"


def step_rows(work: StepWork) -> list[str]:
    """The rows of what a step does."""
    return group_rows(work) if isinstance(work, Group) else statement_rows(work)


def _lifetime_rows(step: ScheduledStep) -> list[str]:
    """Rows behind a step: the memory that it takes over, and the buffers used there last."""
    rows = [f"take over {read} for {written}" for written, read in step.takes_over]
    return rows + ([f"last use of {', '.join(step.last_uses)}"] if step.last_uses else [])


def print_schedule(schedule: Schedule, *, origins: bool = False) -> str:
    """The program as it was scheduled, then the steps in order."""
    rows = ["schedule"]
    for step in schedule.steps:
        if isinstance(step.work, Group):
            rows += _comments(step.work.origins, "  ") if origins else ()
        rows += (f"  {row}" for row in (*step_rows(step.work), *_lifetime_rows(step)))
    return print_program(schedule.program, origins=origins) + "\n".join(rows) + "\n"
