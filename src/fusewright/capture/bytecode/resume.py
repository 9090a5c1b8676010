"""Resume functions: code that goes on in the middle of another function.

A resume function's code is the original's, all of it, after a prologue that puts the stack back
and jumps:

    def f(.s0, .s1, x, y):         # stack entries and live locals of f at the break
        push .s0; push NULL; push .s1
        jump to the instruction where f was left
        ... the instructions of f, as they were

so loops that go back before the break still work, exception regions stay as they are, and each
instruction keeps its place in the source. One code object serves every break at a place, whatever
the values: a loop around a break comes back to the same one. Cells of the original are free
variables of the resume function, so that closures made before the break share them.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from types import CodeType
from typing import Any

from fusewright.capture.bytecode import (
    Builder,
    CodeUnit,
    Instruction,
    OffsetOf,
    assemble,
    taken_apart,
)
from fusewright.capture.bytecode.builder import opening
from fusewright.capture.bytecode.instruction import (
    CO_GENERATOR,
    CO_NESTED,
    CO_VARARGS,
    CO_VARKEYWORDS,
)
from fusewright.capture.bytecode.liveness import (
    LOCAL_INSTRUCTIONS,
    live_cells,
    live_locals,
    reachable,
)
from fusewright.capture.bytecode.operations import skipped_by_jump
from fusewright.records import field, record, replace


class Slot(enum.Enum):
    """The kind of an entry of the value stack, which decides how a prologue puts it back."""

    VALUE = enum.auto()
    """An object, which is passed."""

    NULL = enum.auto()
    """The NULL that CPython keeps beside a callable."""

    EXCEPTION = enum.auto()
    """The exception handled before the one that is passed, which is being handled from here on."""


@record
class OffsetSlot:
    """The place of an instruction that raised, as some handlers find it on the stack."""

    position: int
    """Index of the instruction in the original code."""


Shape = tuple[Slot | OffsetSlot, ...]
"""The value stack from the bottom."""


@record
class ResumePoint:
    """A place in a code object together with what is passed there."""

    position: int
    """Index of the instruction to go on with, in the original code."""

    shape: Shape
    passed_first: int
    """The number of slots at the top that come first among the parameters; the others follow from
    the bottom, then the locals.
    """

    locals: tuple[str, ...]
    """The local variables that are bound and may be read again."""

    own_cells: tuple[str, ...] = ()
    """Empty cells that are not shared yet, which the resume function makes itself."""


@record
class _Origin:
    """The code and position that a resume function resumes; stands among its constants."""

    code: CodeType
    position: int
    """The index of the instruction at which the function goes on."""

    prologue_length: int


@record(frozen=False)
class _Original:
    """A code object that has resume functions."""

    code: CodeType
    unit: CodeUnit
    live: list[frozenset[str]]
    live_cells: list[frozenset[str]]
    resumes: dict[ResumePoint, CodeType] = field(default_factory=dict)


class ResumeTable:
    """The resume functions of one compiled callable, each made once."""

    def __init__(self) -> None:
        self._originals: dict[int, _Original] = {}

    def locate(self, code: CodeType, position: int) -> tuple[CodeType, int]:
        """The original code and the position there of an instruction of a resume function; of any
        other code, the same again.
        """
        origin = _origin(code)
        if origin is None:
            return code, position
        return origin.code, position - origin.prologue_length

    def begins_after(self, code: CodeType, position: int) -> bool:
        """Whether a code is that of a resume function which continues after this instruction of the
        original, or where it jumps to.
        """
        origin = _origin(code)
        if origin is None:
            return False
        instructions = self._original(origin.code).unit.instructions
        instruction = instructions[position]
        next_positions = [position + 1]
        if isinstance(instruction.argument, Instruction):
            target = instructions.index(instruction.argument)
            next_positions.append(target + len(skipped_by_jump(instruction)))
        return origin.position in next_positions

    def live(self, code: CodeType, position: int) -> frozenset[str]:
        """The locals that may be read from an instruction of an original code on."""
        return self._original(code).live[position]

    def may_find_empty(self, code: CodeType, position: int, empty: Collection[str]) -> bool:
        """Whether an original code, from an instruction on, may read a variable of its own whose
        cell is empty: one of `empty`, or one that it empties. In a resume function, where such
        cells come from outside, that would not raise UnboundLocalError.
        """
        own = frozenset(code.co_cellvars) - frozenset(code.co_freevars)
        if not own:
            return False
        entry = self._original(code)
        if not entry.live_cells[position].isdisjoint(empty):
            return True
        instructions = entry.unit.instructions
        emptying = [
            index
            for index, instruction in enumerate(instructions)
            if instruction.name == "DELETE_DEREF"
            and instruction.argument in entry.live_cells[index + 1] & own
        ]
        return bool(emptying) and not reachable(instructions, position).isdisjoint(emptying)

    def free_names(self, code: CodeType) -> tuple[str, ...]:
        """The free variables of the resume functions of an original code."""
        own = [name for name in code.co_cellvars if name not in code.co_freevars]
        return (*code.co_freevars, *own)

    def code(self, original: CodeType, point: ResumePoint) -> CodeType:
        """The code of the function that goes on at a point."""
        entry = self._original(original)
        resume_code = entry.resumes.get(point)
        if resume_code is None:
            resume_code = entry.resumes[point] = assemble(_resume_unit(entry, point, self))
        return resume_code

    def _original(self, code: CodeType) -> _Original:
        entry = self._originals.get(id(code))
        if entry is None:
            unit = taken_apart(code)
            live = live_locals(unit.instructions), live_cells(unit.instructions)
            entry = self._originals[id(code)] = _Original(code, unit, *live)
        return entry


def _origin(code: CodeType) -> _Origin | None:
    return next((item for item in code.co_consts[:2] if isinstance(item, _Origin)), None)


def goes_on_at(code: CodeType) -> tuple[int, int] | None:
    """The instruction and line of its original at which a resume function goes on, by its code.
    None for other code.
    """
    origin = _origin(code)
    if origin is None:
        return None
    following = taken_apart(origin.code).instructions[origin.position :]
    lines = (instruction.positions.line for instruction in following)
    return origin.position, next(filter(None, lines), origin.code.co_firstlineno)


def first_argument(code: CodeType) -> str | None:
    """The parameter that `super()` without arguments looks for in the first slot of the frame."""
    return code.co_varnames[0] if "__class__" in code.co_freevars and code.co_argcount else None


def parameters(code: CodeType, point: ResumePoint) -> tuple[str, ...]:
    """The parameters of a resume function, in order."""
    passed = [index for index, slot in enumerate(point.shape) if is_passed(slot)]
    split = len(point.shape) - point.passed_first
    order = [i for i in passed if i >= split] + [i for i in passed if i < split]
    first = first_argument(code)
    opening_parameter = () if first is None else (_first_name(code, first),)
    stack = [f".s{index}" for index in order]
    return (*opening_parameter, *stack, *[name for name in point.locals if name != first])


def _first_name(code: CodeType, name: str) -> str:
    """The name of that parameter in a resume function, where a cell may be a free variable."""
    return f".{name}" if name in code.co_cellvars else name


def is_passed(slot: Slot | OffsetSlot) -> bool:
    """Whether a slot takes a parameter."""
    return slot is Slot.VALUE or slot is Slot.EXCEPTION


def _resume_unit(original: _Original, point: ResumePoint, table: ResumeTable) -> CodeUnit:
    unit, code = original.unit, original.code
    names = parameters(code, point)
    body = _copy(unit.instructions, point.position)
    _rename_hidden(body, frozenset(code.co_freevars))
    target = body[point.position]
    prologue = _prologue(point.shape, body, target)
    free_names = tuple(name for name in table.free_names(code) if name not in point.own_cells)
    start = [
        *opening(point.own_cells, free_names, is_generator=bool(unit.flags & CO_GENERATOR)),
        *prologue,
    ]
    flags = unit.flags & ~(CO_VARARGS | CO_VARKEYWORDS | CO_NESTED)
    variables = {*names, *free_names, *point.own_cells}
    others = [name for name in unit.local_names if name not in variables]
    return replace(
        unit,
        flags=flags | (CO_NESTED if free_names else 0),
        argument_count=len(names),
        positional_only_count=0,
        keyword_only_count=0,
        local_names=(*names, *others),
        cell_names=point.own_cells,
        free_names=free_names,
        constants=(None, _Origin(code, point.position, len(start))),
        names=(),
        instructions=[*start, *body],
    )


def _copy(instructions: Sequence[Instruction], start: int) -> list[Instruction]:
    """The instructions once more, those that cannot run any more as placeholders, so that positions
    stay.
    """
    reached = reachable(instructions, start)
    copies = [
        replace(instruction) if index in reached else Instruction("NOP")
        for index, instruction in enumerate(instructions)
    ]
    copy_of = dict(zip(instructions, copies, strict=True))
    regions: dict[Any, Any] = {}
    for copy in copies:
        if isinstance(copy.argument, Instruction):
            copy.argument = copy_of[copy.argument]
        if copy.region is not None:
            if copy.region not in regions:
                handler = copy_of[copy.region.handler]
                regions[copy.region] = replace(copy.region, handler=handler)
            copy.region = regions[copy.region]
    return copies


def _rename_hidden(instructions: Sequence[Instruction], free_names: frozenset[str]) -> None:
    """Give locals of inlined comprehensions (CPython 3.12 on) that hide a variable of an outer
    function names of their own: here that variable is found by its name.
    """

    def renamed(name: str) -> str:
        return f".{name}" if name in free_names else name

    for instruction in instructions:
        match instruction.name, instruction.argument:
            case name, (str(first), str(second)) if name in LOCAL_INSTRUCTIONS:
                instruction.argument = (renamed(first), renamed(second))
            case name, str(variable) if name in LOCAL_INSTRUCTIONS:
                instruction.argument = renamed(variable)


def _prologue(shape: Shape, body: Sequence[Instruction], target: Instruction) -> list[Instruction]:
    """Put the stack back and go to the target."""
    builder = Builder(positions=target.positions)
    for index, slot in enumerate(shape):
        match slot:
            case Slot.VALUE:
                builder.load_local(f".s{index}")
                builder.delete_local(f".s{index}")
            case Slot.NULL:
                builder.emit("PUSH_NULL")
            case Slot.EXCEPTION:
                builder.load_local(f".s{index}")
                builder.delete_local(f".s{index}")
                builder.emit("PUSH_EXC_INFO")
                builder.pop()
            case OffsetSlot(position):
                builder.emit("LOAD_CONST", OffsetOf(body[position]))
    builder.jump(target)
    return builder.instructions
