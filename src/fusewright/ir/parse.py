"""Reads the text form of programs, groups and schedules: the inverse of `text`. Wrapper lines:
`parse_lines`.

A recursive descent over the tokens of each line. Errors name the line and mark the place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import get_args

from fusewright.ir.dtype import BY_TEXT, DType
from fusewright.ir.grammar import (
    Reader,
    at_symbol,
    between,
    read_buffer,
    read_dtype,
    read_index,
    read_index_list,
    read_loops,
    read_number,
    read_results,
    read_symbol,
)
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
    Store,
)
from fusewright.ir.index import Index, LoopSymbol
from fusewright.ir.lexer import Cursor, Line
from fusewright.ir.ops import OPERATIONS, Result
from fusewright.ir.parse_forms import read_outputs, read_row
from fusewright.ir.program import (
    Body,
    Buffer,
    ComputedBuffer,
    Operand,
    Pointwise,
    Program,
    Reduction,
    RowStatement,
    Scan,
    Scatter,
    Statement,
    operand_buffers,
)
from fusewright.ir.sizes import SizeFact
from fusewright.ir.value import Expressions, Number, Value
from fusewright.records import field, record

# The doors ----------------------------------------------------------------------------------------


def parse_program(text: str) -> Program:
    """The program that `print_program` printed; `MalformedProgram` marks what does not parse."""
    reader = Reader.of(text)
    program = read_program(reader)
    reader.finish()
    return program


def parse_group(text: str, expressions: Expressions | None = None) -> Group:
    """The group that `print_group` printed, its values made in `expressions`."""
    reader = Reader.of(text, expressions)
    group = _group(reader)
    reader.finish()
    return group


def parse_commented_loops(source: str) -> Group:
    """The group that `commented_loops` printed above the source of its kernel."""
    rows = itertools.takewhile(lambda row: row.startswith("# "), source.strip("\n").split("\n"))
    return parse_group("".join(f"{row.removeprefix('# ')}\n" for row in rows))


def parse_schedule(text: str) -> Schedule:
    """The schedule that `print_schedule` printed."""
    reader = Reader.of(text)
    program = read_program(reader)
    head = reader.next()
    reader.cursor(head).expect("schedule")
    steps: list[ScheduledStep] = []
    while (line := reader.peek()) is not None:
        cursor = reader.cursor(line)
        work = _group(reader) if _begins(cursor, "group") else read_statement(reader)
        if isinstance(work, ComputedBuffer):
            raise cursor.error("a schedule's steps are groups, extern calls and copies")
        takes_over, last_uses = _taken_over(reader), _last_uses(reader)
        steps.append(ScheduledStep(work=work, takes_over=takes_over, last_uses=last_uses))
    return Schedule(program=program, steps=tuple(steps))


def _begins(cursor: Cursor, word: str) -> bool:
    """Whether a line begins with a word of the syntax, not with a buffer of that name."""
    return cursor.at(word) and cursor.peek(1).text != ":"


def _taken_over(reader: Reader) -> tuple[tuple[str, str], ...]:
    """Read the lines `take over x for y` behind a step."""
    pairs: list[tuple[str, str]] = []
    while (line := reader.peek()) is not None and _begins(reader.cursor(line), "take"):
        cursor = reader.cursor(reader.next())
        cursor.expect("take")
        cursor.expect("over")
        read = cursor.take("name")
        cursor.expect("for")
        pairs.append((cursor.take("name"), read))
        cursor.finish()
    return tuple(pairs)


def _last_uses(reader: Reader) -> tuple[str, ...]:
    """Read the line `last use of x, y` behind a step, if there is one."""
    line = reader.peek()
    if line is None or not _begins(reader.cursor(line), "last"):
        return ()
    cursor = reader.cursor(reader.next())
    for word in ("last", "use", "of"):
        cursor.expect(word)
    names = [cursor.take("name")]
    while cursor.accept(","):
        names.append(cursor.take("name"))
    cursor.finish()
    return tuple(names)


# Bodies -------------------------------------------------------------------------------------------


@record(frozen=False)
class BodyReader:
    """The names of one body: its loop variables and loaded indices, and its values."""

    reader: Reader
    symbols: dict[str, Index]
    values: dict[str, Value] = field(default_factory=dict)

    def define(self, cursor: Cursor) -> None:
        """Read `t3 = add t1, t2` and remember the value."""
        name = cursor.take("name")
        if name in self.values or name in self.symbols:
            cursor.position -= 1
            raise cursor.error(f"{name} is defined twice")
        cursor.expect("=")
        operation = cursor.take("name")
        try:
            if operation == "indirect":
                self.symbols[name] = self._indirect(cursor)
            else:
                reading = _VALUES.get(operation)
                value = reading(self, cursor) if reading else self._apply(cursor, operation)
                self.values[name] = value
        except TypeError as error:
            raise cursor.error(str(error)) from error
        cursor.finish()

    def operand(self, cursor: Cursor) -> Value:
        """A value by name, or a typed constant: `f32(0.5)`."""
        name = cursor.take("name")
        if name in self.values:
            return self.values[name]
        if name in BY_TEXT and cursor.accept("("):
            value = read_number(cursor)
            cursor.expect(")")
            return self.reader.expressions.constant(value, BY_TEXT[name])
        cursor.position -= 1
        raise cursor.error(f"{name} is not defined")

    def access(self, cursor: Cursor) -> tuple[str, Index]:
        """`x[128*i0 + r0]`."""
        name = cursor.take("name")
        if name not in self.reader.types:
            cursor.position -= 1
            raise cursor.error(f"{name} is not defined")
        cursor.expect("[")
        index = read_index(cursor, self.symbols)
        cursor.expect("]")
        return name, index

    def _typed(self, cursor: Cursor) -> DType:
        cursor.expect(":")
        return read_dtype(cursor)

    def load(self, cursor: Cursor) -> Value:
        name, index = self.access(cursor)
        return self.reader.expressions.load(name, index, self.reader.types[name])

    def index(self, cursor: Cursor) -> Value:
        index = read_index(cursor, self.symbols)
        return self.reader.expressions.index(index, self._typed(cursor))

    def cast(self, cursor: Cursor) -> Value:
        argument = self.operand(cursor)
        return self.reader.expressions.cast(argument, self._typed(cursor))

    def masked(self, cursor: Cursor) -> Value:
        mask = self.operand(cursor)
        cursor.expect(",")
        value = self.operand(cursor)
        cursor.expect(",")
        return self.reader.expressions.masked(mask, value, read_number(cursor))

    def random(self, cursor: Cursor) -> Value:
        kind = cursor.take("name")
        seed = self.operand(cursor)
        cursor.expect("at")
        position = read_index(cursor, self.symbols)
        return self.reader.expressions.random(kind, seed, position, self._typed(cursor))

    def _indirect(self, cursor: Cursor) -> Index:
        value = self.operand(cursor)
        cursor.expect("below")
        size = read_index(cursor, self.symbols)
        wrap = cursor.accept("wrap")
        check = cursor.accept("check")
        return self.reader.expressions.indirect(value, size, wrap=wrap, check=check)

    def _apply(self, cursor: Cursor, operation: str) -> Value:
        if operation not in OPERATIONS:
            cursor.position -= 1
            raise cursor.error(f"there is no operation {operation!r}")
        arguments: list[Value | Number] = []
        while True:
            at_value = cursor.peek().kind == "name" and not cursor.at("True", "False", "inf", "nan")
            arguments.append(self.operand(cursor) if at_value else read_number(cursor))
            if not cursor.accept(","):
                break
        skipped = 1 if OPERATIONS[operation].result is Result.SECOND else 0
        typed = [v for v in arguments[skipped:] if not isinstance(v, bool | int | float)]
        if not typed:
            raise cursor.error(f"nothing tells the type of the arguments of {operation}")
        expressions = self.reader.expressions
        return expressions.apply(
            operation,
            *(
                expressions.constant(value, typed[0].dtype)
                if isinstance(value, bool | int | float)
                else value
                for value in arguments
            ),
        )


_VALUES: dict[str, Callable[[BodyReader, Cursor], Value]] = {
    "load": BodyReader.load,
    "index": BodyReader.index,
    "cast": BodyReader.cast,
    "masked": BodyReader.masked,
    "random": BodyReader.random,
}


# Programs -----------------------------------------------------------------------------------------


def read_program(reader: Reader) -> Program:
    """A program, whose last row returns its results."""
    head = reader.next()
    cursor = reader.cursor(head)
    cursor.expect("program")
    name = cursor.take("name")
    sizes: list[SizeFact] = []
    inputs: list[Buffer] = []

    def read_parameter() -> None:
        if at_symbol(cursor):
            symbol = read_symbol(cursor)
            cursor.expect("hint")
            sizes.append(SizeFact(symbol, read_number(cursor)))
            reader.symbols[symbol.name] = symbol.index
        else:
            inputs.append(read_buffer(cursor, reader))

    between(cursor, "(", ")", read_parameter)
    cursor.finish()
    constants: list[Buffer] = []
    statements: list[Statement] = []
    mutations: list[tuple[str, str]] = []
    released: list[Operand] = []
    while True:
        line = reader.next()
        cursor = reader.cursor(line)
        is_definition = cursor.peek(1).text == ":"
        if not is_definition and cursor.accept("constant"):
            constants.append(read_buffer(cursor, reader))
            cursor.finish()
        elif not is_definition and cursor.accept("release"):
            released += read_results(cursor, reader)
        elif not is_definition and cursor.accept("mutation"):
            result = cursor.take("name")
            cursor.expect("of")
            mutations.append((result, cursor.take("name")))
            cursor.finish()
        elif not is_definition and cursor.accept("return"):
            outputs = read_results(cursor, reader)
            break
        else:
            reader.position -= 1
            statements.append(read_statement(reader))
    return Program(
        name=name,
        inputs=tuple(inputs),
        sizes=tuple(sizes),
        constants=tuple(constants),
        statements=tuple(statements),
        outputs=outputs,
        mutations=tuple(mutations),
        released_inputs=frozenset(operand_buffers(released)),
        expressions=reader.expressions,
    )


def read_statement(reader: Reader) -> Statement:
    """The next statement, with its body."""
    line = reader.next()
    cursor = reader.cursor(line)
    outputs = read_outputs(cursor, reader)
    if not outputs or cursor.at("extern", "subprogram", "unfilled"):
        reader.position -= 1
        statement: RowStatement = read_row(reader, get_args(RowStatement))
        return statement
    return ComputedBuffer(outputs=outputs, body=_body(cursor, reader, reader.below(line)))


def _body(cursor: Cursor, reader: Reader, rows: list[Line]) -> Body:
    form = cursor.take("name")
    if form not in ("pointwise", "reduce", "scan", "scatter"):
        cursor.position -= 1
        raise cursor.error(f"there is no body {form!r}")
    kind = "" if form == "pointwise" else cursor.take("name")
    symbols = dict(reader.symbols)
    loops = read_loops(cursor, symbols)
    over: tuple[LoopSymbol, ...] = ()
    if form == "reduce":
        cursor.expect("over")
        over = read_loops(cursor, symbols)
    along = _along(cursor, loops) if form == "scan" else None
    base = ""
    if form == "scatter":
        cursor.expect("into")
        base = cursor.take("name")
    cursor.finish()
    values = BodyReader(reader, symbols)
    if not rows:
        raise cursor.error("a body ends with `yield`")
    for row in rows[:-1]:
        values.define(reader.cursor(row))
    last = reader.cursor(rows[-1])
    last.expect("yield")
    value = values.operand(last)
    body: Body
    match form:
        case "pointwise":
            body = Pointwise(loops=loops, value=value)
        case "reduce":
            body = Reduction(loops=loops, reduction_loops=over, kind=kind, value=value)
        case "scan":
            assert along is not None
            body = Scan(loops=loops, along=along, kind=kind, value=value)
        case _:
            last.expect("at")
            index = read_index(last, symbols)
            behind = reader.expressions.behind(index)
            body = Scatter(
                loops=loops, base=base, index=index, indirect=behind, mode=kind, value=value
            )
    last.finish()
    return body


def _along(cursor: Cursor, loops: tuple[LoopSymbol, ...]) -> LoopSymbol:
    """`along i1`: one of the loops."""
    cursor.expect("along")
    name = cursor.take("name")
    along = next((symbol for symbol in loops if symbol.name == name), None)
    if along is None:
        cursor.position -= 1
        raise cursor.error(f"{name} is none of the loops")
    return along


# Groups -------------------------------------------------------------------------------------------


def _group(reader: Reader) -> Group:
    head = reader.next()
    cursor = reader.cursor(head)
    cursor.expect("group")
    name = cursor.take("name")
    rows = reader.below(head)
    own = Reader(reader.source, rows, reader.expressions)
    own.symbols.update(reader.symbols)
    reads: list[Buffer] = []
    writes: list[Buffer] = []
    reuses: list[tuple[str, str]] = []
    loop_place = cursor.position
    while (line := own.peek()) is not None:
        row = own.cursor(line)
        if row.accept("size"):
            symbol = read_symbol(row)
            own.symbols[symbol.name] = symbol.index
        elif row.accept("read"):
            reads.append(read_buffer(row, own))
        elif row.accept("write"):
            writes.append(read_buffer(row, own))
        elif row.accept("reuse"):
            read = row.take("name")
            row.expect("for")
            reuses.append((row.take("name"), read))
        else:
            break
        row.finish()
        own.position += 1
    cursor.position = loop_place
    outer = read_loops(cursor, own.symbols)
    cursor.finish()
    locals_: list[Local] = []
    while (line := own.peek()) is not None and (row := own.cursor(line)).accept("local"):
        locals_.append(_local(row, own))
        own.position += 1
    stages: list[Stage] = []
    while own.peek() is not None:
        stages.append(_stage(own))
    return Group(
        name=name,
        outer=outer,
        locals=tuple(locals_),
        stages=tuple(stages),
        reads=tuple(reads),
        writes=tuple(writes),
        reuses=tuple(reuses),
    )


def _local(cursor: Cursor, reader: Reader) -> Local:
    name = cursor.take("name")
    cursor.expect(":")
    dtype = read_dtype(cursor)
    size = read_index_list(cursor, reader.symbols) if cursor.at("[") else ()
    cursor.finish()
    reader.types[name] = dtype
    return Local(name=name, dtype=dtype, size=size)


def _stage(reader: Reader) -> Stage:
    head = reader.next()
    cursor = reader.cursor(head)
    cursor.expect("stage")
    symbols = dict(reader.symbols)
    inner = read_loops(cursor, symbols) if cursor.accept("over") else ()
    cursor.finish()
    values = BodyReader(reader, symbols)
    actions: list[Action] = []
    for row in reader.below(head):
        line = reader.cursor(row)
        if line.peek(1).text == "=":
            values.define(line)
        else:
            actions.append(_action(line, values))
            line.finish()
    return Stage(inner=inner, actions=tuple(actions))


def _action(cursor: Cursor, values: BodyReader) -> Action:
    if cursor.accept("store"):
        buffer, index = values.access(cursor)
        cursor.expect("=")
        return Store(buffer=buffer, index=index, value=values.operand(cursor))
    if cursor.accept("accumulate"):
        mode = cursor.take("name")
        buffer, index = values.access(cursor)
        cursor.expect("=")
        value = values.operand(cursor)
        behind = values.reader.expressions.behind(index)
        return Accumulate(buffer=buffer, index=index, indirect=behind, mode=mode, value=value)
    if cursor.accept("scan"):
        buffer, index = values.access(cursor)
        cursor.expect("=")
        kind = cursor.take("name")
        return ScanStore(buffer=buffer, index=index, kind=kind, value=values.operand(cursor))
    if cursor.accept("gather"):
        buffer, index = values.access(cursor)
        cursor.expect("=")
        kind = cursor.take("name")
        return Gather(buffer=buffer, index=index, kind=kind, value=values.operand(cursor))
    cursor.expect("reduce")
    targets = [cursor.take("name")]
    while cursor.accept(","):
        targets.append(cursor.take("name"))
    cursor.expect("=")
    kind = cursor.take("name")
    return Reduce(targets=tuple(targets), kind=kind, value=values.operand(cursor))
