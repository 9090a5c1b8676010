"""The Python that generated code means: for code whose control only goes on, splits and leaves, as
that of the functions that run in place of captured ones.

    def f(x):                               RESUME
        try:                                PUSH_NULL; LOAD_CONST compiled; LOAD_FAST x
            (graph0,) = compiled(x)         CALL 1  [raises to L1]; UNPACK_SEQUENCE 1; STORE_FAST …
        except BaseException as raised:     L1:
            …
        return [graph0]                     LOAD_FAST .graph0; BUILD_LIST 1; RETURN_VALUE

The instructions are executed on expressions. An expression stays on the stack until something uses
it, unless a statement comes first that it must not move behind: then it becomes a variable. A
variable that only ever means another one is written as that. `cell(x)` is the cell of `x`, a
variable of an outer function; a name in capitals is an instruction that Python has no words for.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, Final

from fusewright.capture.bytecode.disassembler import disassemble
from fusewright.capture.bytecode.instruction import (
    CO_VARARGS,
    LABEL,
    CodeUnit,
    ExceptionRegion,
    Instruction,
)
from fusewright.capture.bytecode.operations import (
    OPERATIONS,
    End,
    consumed,
    produced,
    skipped_by_jump,
)
from fusewright.capture.bytecode.python_names import (
    CONTINUATION,
    RAISED,
    PythonNames,
    function_name,
)
from fusewright.capture.bytecode.versions import VERSION
from fusewright.records import field, record, replace

NOTHING, READS, CALLS = range(3)
"""Effects of evaluating an expression: none, reads from objects, or any. One that may do anything
does not change places with one that reads.
"""

Rows = list[str]


@record
class PythonText:
    """A function as Python."""

    text: str
    constants: Mapping[str, Any]
    """Objects that the text names: functions, classes, the compiled graph; and code, of which it
    makes functions.
    """

    def __str__(self) -> str:
        return self.text


@record(frozen=False, eq=False)
class _Expression:
    """An entry of the stack; the same one where an instruction has copied it."""

    text: str
    does: int = NOTHING
    is_atom: bool = True
    """Whether an operator may be written beside it without brackets."""

    region: ExceptionRegion | None = None
    """The region that catches what evaluating it raises."""

    variable: str = ""
    """The variable of an outer function whose cell it is."""

    is_new: bool = False
    """Whether evaluating it makes an object, which must not be written at two places."""

    @property
    def operand(self) -> str:
        return self.text if self.is_atom else f"({self.text})"

    @property
    def owner(self) -> str:
        """The text before a dot."""
        return f"({self.text})" if self.text[0].isdigit() else self.operand

    def become(self, variable: str) -> None:
        """The value has been stored, and is from now on what the variable holds."""
        self.text, self.does, self.region = variable, NOTHING, None
        self.is_atom, self.is_new = True, False


_NULL: Final = _Expression("NULL")


def as_python(code: CodeType, captured: CodeType | None = None) -> PythonText:
    """The Python that a function's `code` means. `captured`: the code in whose place it runs.

    Raises: ValueError where control goes back, as it does in no code that capture writes.
    """
    unit = disassemble(code)
    name = function_name(captured or code)
    reader = _Reader(unit, name)
    rows = reader.block(0, _State())
    names = [reader.names.variable(name) for name in unit.local_names[: unit.parameter_count]]
    rows = [*(f"nonlocal {name}" for name in sorted(reader.assigned_cells)), *rows]
    head = f"def {name}({', '.join(_parameters(unit, names))}):"
    return PythonText("\n".join([head, *_indented(rows)]) + "\n", reader.names.constants)


def _parameters(unit: CodeUnit, names: Sequence[str]) -> list[str]:
    positional, keywords = unit.argument_count, unit.keyword_only_count
    rest = list(names[positional + keywords :])
    parts = list(names[:positional])
    if unit.positional_only_count:
        parts.insert(unit.positional_only_count, "/")
    if unit.flags & CO_VARARGS:
        parts.append(f"*{rest.pop(0)}")
    elif keywords:
        parts.append("*")
    parts += names[positional : positional + keywords]
    return parts + [f"**{name}" for name in rest]


@record(frozen=False)
class _State:
    """The stack at a place, and what variables mean there."""

    stack: list[_Expression] = field(default_factory=list)
    meanings: dict[str, _Expression] = field(default_factory=dict)
    """Variables that mean another variable or a constant."""

    keywords: tuple[str, ...] = ()
    """Names of the last arguments of the next call."""

    def copy(self, depth: int | None = None) -> _State:
        """The state on another way; entries are copied, since they are named on each by itself."""
        return _State(
            [replace(e) if e is not _NULL else e for e in self.stack[:depth]], dict(self.meanings)
        )


class _Reader:
    """Writes the rows of a function."""

    def __init__(self, unit: CodeUnit, own_name: str) -> None:
        self.instructions = list(unit.instructions)
        self.index_of = {instruction: n for n, instruction in enumerate(self.instructions)}
        self.names = PythonNames(unit, own_name)
        self.assigned_cells: set[str] = set()
        self.parameters = frozenset(unit.local_names[: unit.parameter_count])
        stores = (i for i in self.instructions if i.name == "STORE_FAST" and not self.lets_go(i))
        self.stores = Counter(i.argument for i in stores)
        self.changing = {
            self.names.variable(name)
            for name, times in self.stores.items()
            if times > (name not in self.parameters)
        }
        """Variables that do not always mean the same."""

    def constant(self, value: Any) -> _Expression:
        """A constant: as a literal, or by a name of its own."""
        text = self.names.constant(value)
        return _Expression(text, is_atom=not text.startswith("-"))

    # -- rows ------------------------------------------------------------------------------------

    def block(self, position: int, state: _State) -> Rows:
        """The rows from an instruction on, until control leaves."""
        rows: Rows = []
        while True:
            instruction = self.instructions[position]
            name = instruction.name
            position += 1
            if name in _SKIPPED:
                continue
            if name in ("JUMP", "JUMP_NO_INTERRUPT"):
                target = self.index_of[instruction.argument]
                if target < position:
                    raise ValueError("control goes back")
                position = target
            elif isinstance(instruction.argument, Instruction):
                self._split(instruction, position, state, rows)
                return rows
            elif name == "UNPACK_SEQUENCE":
                position = self._unpack(instruction, position, state, rows)
            else:
                _HANDLERS.get(name, _Reader.other)(self, instruction, state, rows)
                if OPERATIONS[name].end is End.LEAVES:
                    return rows
                self._settle(instruction, position, state, rows)

    def _settle(self, instruction: Instruction, position: int, state: _State, rows: Rows) -> None:
        """Name the result of an instruction that may raise into a handler, unless the next one
        does.
        """
        if instruction.region is None or not state.stack or state.stack[-1].does != CALLS:
            return
        if self.instructions[position].name not in _USES_AT_ONCE:
            self.name_it(state.stack[-1], state, rows)

    def emit(
        self,
        row: str,
        does: int,
        state: _State,
        rows: Rows,
        region: ExceptionRegion | None = None,
    ) -> None:
        """Write a statement, behind what was evaluated before it and must stay there."""
        for entry in state.stack:
            if entry.does and entry.does + does > CALLS:
                self.name_it(entry, state, rows)
        handler = [] if region is None else self._handler(region, state)
        if not handler:
            rows.append(row)
            return
        rows += ["try:", *_indented([row]), f"except BaseException as {RAISED}:"]
        rows += _indented(handler)

    def _handler(self, region: ExceptionRegion, state: _State) -> Rows:
        """The rows of an exception's handler; none where it only raises on."""
        inner = state.copy(region.stack_depth)
        if region.saves_offset:
            inner.stack.append(_Expression("None"))
        inner.stack.append(_Expression(RAISED))
        rows = self.block(self.index_of[region.handler], inner)
        return [] if rows == ["raise"] else rows

    def name_it(self, entry: _Expression, state: _State, rows: Rows) -> None:
        """Give the value of an entry a variable, written now."""
        name = self.names.new("value")
        row, does, region = f"{name} = {entry.text}", entry.does, entry.region
        entry.become(name)
        self.emit(row, does, state, rows, region)

    # -- instructions ----------------------------------------------------------------------------

    def _unpack(self, instruction: Instruction, position: int, state: _State, rows: Rows) -> int:
        """Unpack into the variables in which the parts are stored at once, else into new ones."""
        count = instruction.argument
        whole = state.stack.pop()
        stores = self.instructions[position : position + count]
        if all(part.name == "STORE_FAST" for part in stores):
            names = [self.names.variable(part.argument) for part in stores]
            position += count
            parts = []
        else:
            names = [self.names.new("part") for _ in range(count)]
            parts = [_Expression(name) for name in reversed(names)]
        targets = f"({names[0]},)" if count == 1 else ", ".join(names)
        self.emit(f"{targets} = {whole.text}", CALLS, state, rows, whole.region)
        state.stack += parts
        return position

    def _split(self, instruction: Instruction, position: int, state: _State, rows: Rows) -> None:
        """Write both ways that a jump on a condition, or an iteration, may go."""
        name = instruction.name
        condition = state.stack.pop()
        jumping = state.copy()
        target = self.index_of[instruction.argument] + len(skipped_by_jump(instruction))
        if target < position:
            raise ValueError("control goes back")
        if name == "FOR_ITER":
            item = self.names.new("item")
            state.stack += [condition, _Expression(item)]
            head = f"for {item} in {condition.text}:"
            first, then = self.block(position, state), self.block(target, jumping)
        else:
            if name.endswith("_OR_POP"):
                jumping.stack.append(condition)
            if condition.does and name.endswith("_OR_POP"):
                self.name_it(condition, state, rows)
            head = f"if {_CONDITIONS[name].format(condition.operand)}:"
            first, then = self.block(target, jumping), self.block(position, state)
        self.emit("\n".join([head, *_indented(first)]), CALLS, state, rows)
        rows += then

    def load_constant(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        state.stack.append(self.constant(instruction.argument))

    def load_variable(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        name = instruction.argument
        meaning = state.meanings.get(name)
        state.stack.append(replace(meaning) if meaning else _Expression(self.names.variable(name)))

    def load_free(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        """A variable of an outer function, its cell, or a global."""
        name = instruction.argument
        is_cell = instruction.name == "LOAD_CLOSURE"
        text, does = (f"cell({name})", NOTHING) if is_cell else (name, READS)
        value = _Expression(text, does, variable=name if is_cell else "")
        state.stack += _callable(value) if instruction.name == "LOAD_GLOBAL_NULL" else [value]

    def store_variable(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        name, value = instruction.argument, state.stack.pop()
        if self.lets_go(instruction):
            return
        is_settled = value.does == NOTHING and (value.text.isidentifier() or value.variable)
        if is_settled and self._keeps(name) and value.text not in self.changing:
            state.meanings[name] = replace(value)
            return
        row, does, region = f"{self.names.variable(name)} = {value.text}", value.does, value.region
        value.become(self.names.variable(name))
        self.emit(row, does, state, rows, region)

    def _keeps(self, name: str) -> bool:
        """Whether a variable is stored once, and made by the generator of the code."""
        return name.startswith(".") and self.stores[name] == 1 and name not in self.parameters

    def lets_go(self, instruction: Instruction) -> bool:
        """Whether a variable that capture has made is forgotten, which changes what lives on, and
        nothing of what is computed: it is not written.
        """
        if not instruction.argument.startswith("."):
            return False
        before = self.instructions[self.index_of[instruction] - 1]
        return instruction.name == "DELETE_FAST" or (
            before.name == "LOAD_CONST" and before.argument is None
        )

    def delete_variable(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        if not self.lets_go(instruction):
            self.emit(f"del {self.names.variable(instruction.argument)}", NOTHING, state, rows)

    def push_null(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        state.stack.append(_NULL)

    def pop(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        top = state.stack.pop()
        if top.does == CALLS:
            self.emit(top.text, CALLS, state, rows, top.region)

    def duplicate(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        """An entry that does something is named first, unless it is just about to be."""
        entry = state.stack[-instruction.argument]
        following = self.instructions[self.index_of[instruction] + 1]
        is_stored = following.name == "STORE_FAST" and instruction.argument == 1
        if (entry.does or entry.is_new) and not is_stored:
            self.name_it(entry, state, rows)
        state.stack.append(entry)

    def swap(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        stack, depth = state.stack, instruction.argument
        for entry in stack[-depth:]:
            if entry.does:
                self.name_it(entry, state, rows)
        stack[-1], stack[-depth] = stack[-depth], stack[-1]

    def load_attribute(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        owner = state.stack.pop()
        if owner.variable and instruction.argument == "cell_contents":
            text = owner.variable
        else:
            text = f"{owner.owner}.{instruction.argument}"
        value = _Expression(text, max(owner.does, READS), region=owner.region)
        state.stack += _callable(value) if instruction.name == "LOAD_METHOD" else [value]

    def store_attribute(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        owner, value = state.stack.pop(), state.stack.pop()
        if owner.variable and instruction.argument == "cell_contents":
            target = owner.variable
            self.assigned_cells.add(target)
        else:
            target = f"{owner.owner}.{instruction.argument}"
        self.emit(f"{target} = {value.text}", CALLS, state, rows, instruction.region)

    def keyword_names(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        state.keywords = instruction.argument

    def call(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        keywords, state.keywords = state.keywords, ()
        if instruction.name == "CALL_KW":
            keywords = ast.literal_eval(state.stack.pop().text)
        arguments = _popped(state, instruction.argument)
        pair = _popped(state, 2)
        function, *receiver = [entry for entry in pair if entry is not _NULL]
        parts = [entry.text for entry in (*receiver, *arguments)]
        for place, keyword_name in enumerate(reversed(keywords), start=1):
            parts[-place] = f"{keyword_name}={parts[-place]}"
        text = f"{function.operand}({', '.join(parts)})"
        state.stack.append(_Expression(text, CALLS, region=instruction.region))

    def call_with_all(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        """A call of `f(*arguments, **keywords)`."""
        keywords = f", **{state.stack.pop().operand}" if instruction.argument & 1 else ""
        arguments = state.stack.pop()
        function = next(entry for entry in _popped(state, 2) if entry is not _NULL)
        text = f"{function.operand}(*{arguments.operand}{keywords})"
        state.stack.append(_Expression(text, CALLS, region=instruction.region))

    def make_function(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        """A function is written by name; its cells are the variables that its code names."""
        code = state.stack.pop()
        _popped(state, (instruction.argument or 0).bit_count())
        state.stack.append(code)

    def give_closure(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        function = state.stack.pop()
        state.stack[-1] = function

    def build(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        parts = _popped(state, consumed(instruction))
        texts = [entry.text for entry in parts]
        match instruction.name:
            case "BUILD_TUPLE":
                text = f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
            case "BUILD_LIST":
                text = f"[{', '.join(texts)}]"
            case "BUILD_CONST_KEY_MAP":
                keys = map(repr, ast.literal_eval(texts.pop()))
                text = f"{{{', '.join(map(': '.join, zip(keys, texts, strict=True)))}}}"
            case _:
                pairs = zip(texts[::2], texts[1::2], strict=True)
                text = f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
        does = max((entry.does for entry in parts), default=NOTHING)
        state.stack.append(_Expression(text, does, region=_region(parts), is_new=True))

    def operate(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        """An operator or an item: as its template says."""
        template, argument = _TEMPLATES[instruction.name], instruction.argument
        if isinstance(template, tuple):
            template, argument = template[argument], ""
        parts = _popped(state, consumed(instruction))
        text = template.format(*(entry.operand for entry in parts), operator=argument)
        region = instruction.region or _region(parts)
        if instruction.name == "BINARY_OP" and argument.endswith("="):
            name = self.names.new("value")
            row = f"{name} = {parts[0].text}\n{name} {argument} {parts[1].text}"
            self.emit(row, CALLS, state, rows, region)
            state.stack.append(_Expression(name))
            return
        if not produced(instruction, jumps=False):
            self.emit(text, CALLS, state, rows, region)
            return
        is_item = instruction.name == "BINARY_SUBSCR"
        does = max(READS if is_item and region is None else CALLS, *(p.does for p in parts))
        state.stack.append(_Expression(text, does, is_item, region))

    def leave(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        """Return, or raise."""
        name = instruction.name
        if name == "RETURN_CONST":
            state.stack.append(self.constant(instruction.argument))
        if name == "RAISE_VARARGS":
            parts = _popped(state, instruction.argument)
            text = " from ".join(entry.text for entry in parts)
            self.emit(f"raise {text}".rstrip(), CALLS, state, rows, instruction.region)
            return
        value = state.stack.pop()
        if name == "RERAISE":
            rows.append("raise" if value.text == RAISED else f"raise {value.text}")
            return
        name = value.text.removeprefix(f"{CONTINUATION}(").partition(",")[0]
        line = self.names.lines.get(name)
        note = "" if line is None else f"  # goes on at line {line}"
        self.emit(f"return {value.text}{note}", value.does, state, rows, value.region)

    def begin_handling(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        state.stack.insert(-1, _Expression("None"))

    def end_handling(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        state.stack.pop()

    def other(self, instruction: Instruction, state: _State, rows: Rows) -> None:
        """An instruction without a form in Python, as a call of its name."""
        parts = _popped(state, consumed(instruction))
        argument = [] if instruction.argument is None else [repr(instruction.argument)]
        text = f"{instruction.name}({', '.join(argument + [entry.text for entry in parts])})"
        count = produced(instruction, jumps=False)
        region = instruction.region or _region(parts)
        if count == 1:
            state.stack.append(_Expression(text, CALLS, region=region))
            return
        names = [self.names.new("part") for _ in range(count)]
        self.emit(" = ".join([*filter(None, [", ".join(names)]), text]), CALLS, state, rows, region)
        state.stack += map(_Expression, names)


def _callable(function: _Expression) -> list[_Expression]:
    """The two entries that a call finds below its arguments."""
    return [function, _NULL] if VERSION.null_above_callable else [_NULL, function]


def _popped(state: _State, count: int) -> list[_Expression]:
    """The `count` top entries, taken off."""
    if not count:
        return []
    parts = state.stack[-count:]
    del state.stack[-count:]
    return parts


def _region(parts: Sequence[_Expression]) -> ExceptionRegion | None:
    return next((entry.region for entry in parts if entry.region is not None), None)


def _indented(rows: Rows) -> list[str]:
    return [f"    {line}" for row in rows for line in row.split("\n")]


_SKIPPED: Final = frozenset(
    {LABEL, "NOP", "CACHE", "RESUME", "PRECALL", "COPY_FREE_VARS", "MAKE_CELL"}
)

_USES_AT_ONCE: Final = frozenset({"STORE_FAST", "UNPACK_SEQUENCE", "POP_TOP", "RETURN_VALUE"})

_CONDITIONS: Final = {
    "POP_JUMP_IF_TRUE": "{}",
    "POP_JUMP_IF_FALSE": "not {}",
    "POP_JUMP_IF_NONE": "{} is None",
    "POP_JUMP_IF_NOT_NONE": "{} is not None",
    "JUMP_IF_TRUE_OR_POP": "{}",
    "JUMP_IF_FALSE_OR_POP": "not {}",
}

_TEMPLATES: Final[dict[str, str | tuple[str, str]]] = {
    "BINARY_SUBSCR": "{0}[{1}]",
    "STORE_SUBSCR": "{1}[{2}] = {0}",
    "DELETE_SUBSCR": "del {0}[{1}]",
    "BINARY_SLICE": "{0}[{1}:{2}]",
    "BINARY_OP": "{0} {operator} {1}",
    "COMPARE_OP": "{0} {operator} {1}",
    "COMPARE_OP_TO_BOOL": "bool({0} {operator} {1})",
    "TO_BOOL": "bool({0})",
    "CONTAINS_OP": ("{0} in {1}", "{0} not in {1}"),
    "IS_OP": ("{0} is {1}", "{0} is not {1}"),
    "UNARY_INVERT": "~{0}",
    "UNARY_NEGATIVE": "-{0}",
    "UNARY_POSITIVE": "+{0}",
    "UNARY_NOT": "not {0}",
    "GET_ITER": "iter({0})",
    "BUILD_SLICE": "slice({0}, {1})",
}

_Handler = Callable[[_Reader, Instruction, _State, Rows], None]

_HANDLERS: Final[dict[str, _Handler]] = {
    "LOAD_CONST": _Reader.load_constant,
    "LOAD_FAST": _Reader.load_variable,
    "LOAD_FAST_CHECK": _Reader.load_variable,
    "STORE_FAST": _Reader.store_variable,
    "DELETE_FAST": _Reader.delete_variable,
    "LOAD_GLOBAL": _Reader.load_free,
    "LOAD_GLOBAL_NULL": _Reader.load_free,
    "LOAD_DEREF": _Reader.load_free,
    "LOAD_CLOSURE": _Reader.load_free,
    "LOAD_ATTR": _Reader.load_attribute,
    "LOAD_METHOD": _Reader.load_attribute,
    "STORE_ATTR": _Reader.store_attribute,
    "PUSH_NULL": _Reader.push_null,
    "POP_TOP": _Reader.pop,
    "COPY": _Reader.duplicate,
    "SWAP": _Reader.swap,
    "KW_NAMES": _Reader.keyword_names,
    "CALL": _Reader.call,
    "CALL_KW": _Reader.call,
    "CALL_FUNCTION_EX": _Reader.call_with_all,
    "MAKE_FUNCTION": _Reader.make_function,
    "SET_FUNCTION_ATTRIBUTE": _Reader.give_closure,
    "BUILD_TUPLE": _Reader.build,
    "BUILD_LIST": _Reader.build,
    "BUILD_MAP": _Reader.build,
    "BUILD_CONST_KEY_MAP": _Reader.build,
    "RETURN_VALUE": _Reader.leave,
    "RETURN_CONST": _Reader.leave,
    "RAISE_VARARGS": _Reader.leave,
    "RERAISE": _Reader.leave,
    "PUSH_EXC_INFO": _Reader.begin_handling,
    "POP_EXCEPT": _Reader.end_handling,
    **dict.fromkeys(_TEMPLATES, _Reader.operate),
}
"""The handler of each instruction, which adds to the stack or the rows; any other is
`_Reader.other`.
"""
