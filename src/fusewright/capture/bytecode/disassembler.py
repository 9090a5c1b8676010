"""Take a code object apart into a `CodeUnit`."""

from __future__ import annotations

import opcode
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final

from fusewright.capture.bytecode.instruction import (
    NO_POSITIONS,
    CodeUnit,
    ExceptionRegion,
    Instruction,
    Positions,
)
from fusewright.capture.bytecode.tables import decode_exceptions
from fusewright.capture.bytecode.versions import (
    BINARY_OPERATORS,
    OPERATIONS,
    VERSION,
    Encoding,
    Operand,
)
from fusewright.errors import Location, Unsupported
from fusewright.records import replace

_COMPARISONS = {operand: meaning for meaning, operand in VERSION.comparisons.items()}


def disassemble(code: CodeType, *, keep_pairs: bool = False) -> CodeUnit:
    """The parts of a function's `code`, such that `assemble` gives back an equal code object.

    Instructions of 3.13 that do two things come as two: those on two locals, since one could not be
    written again where its variables have slots above 15, and a comparison whose result is made a
    bool, since a graph may end between the two. With `keep_pairs` they come as they are.
    Nested functions' code objects are left as they are among the constants. The body of a module or
    class that contains a comprehension cannot be given back in full on 3.12 and later: CPython has
    no public way to make the hidden locals of such a code object. `Unsupported` is raised for the
    one kind of code whose variables names do not tell apart: a class body that defines methods
    which use `__class__`, inside a function that has such a variable too.
    """
    ambiguous = set(code.co_cellvars) & set(code.co_freevars)
    if ambiguous:
        raise Unsupported(
            f"{code.co_qualname} has two variables named {', '.join(sorted(ambiguous))}",
            Location(code.co_filename, code.co_firstlineno),
        )
    instructions = _read_instructions(code)
    return replace(
        header(code),
        constants=code.co_consts,
        names=code.co_names,
        instructions=instructions if keep_pairs else _without_pairs(instructions),
    )


def taken_apart(code: CodeType) -> CodeUnit:
    """The unit that `disassemble` makes of `code`, kept for the life of `code`; not to be changed.
    Code objects are told apart by identity: code that compares equal may stand on other lines.
    """
    key = id(code)
    entry = _UNITS.get(key)
    if entry is None:
        alive = weakref.ref(code, lambda _: _UNITS.pop(key, None))
        entry = _UNITS[key] = (alive, disassemble(code))
    return entry[1]


_UNITS: Final[dict[int, tuple[weakref.ref[CodeType], CodeUnit]]] = {}


def header(code: CodeType) -> CodeUnit:
    """The name, place and variables of a function's `code`, without what it does."""
    return CodeUnit(
        name=code.co_name,
        qualified_name=code.co_qualname,
        filename=code.co_filename,
        first_line=code.co_firstlineno,
        flags=code.co_flags,
        argument_count=code.co_argcount,
        positional_only_count=code.co_posonlyargcount,
        keyword_only_count=code.co_kwonlyargcount,
        local_names=code.co_varnames,
        cell_names=code.co_cellvars,
        free_names=code.co_freevars,
    )


def _read_instructions(code: CodeType) -> list[Instruction]:
    """The instructions, with jumps and exception regions referring to one another."""
    variables = _Variables(code)
    positions = [Positions(*position) for position in code.co_positions()]
    positions += [NO_POSITIONS] * (len(code.co_code) // 2 - len(positions))  # stripped
    at_offset: dict[int, Instruction] = {}
    jumps: list[tuple[Instruction, int]] = []

    for start, end, encoding, operand in _read_encoded(code.co_code):
        instruction = Instruction(encoding.name, positions=positions[start])
        at_offset[start] = instruction
        if encoding.operand is Operand.JUMP:
            jumps.append((instruction, end - operand if encoding.backward else end + operand))
        else:
            _resolve(instruction, encoding, operand, code, variables)

    for instruction, target in jumps:
        instruction.argument = at_offset[target]
    _mark_regions(code, at_offset)
    return list(at_offset.values())


def _without_pairs(instructions: list[Instruction]) -> list[Instruction]:
    """Two instructions for each that does two things; the first is the one that jumps know."""
    singles = []
    for instruction in instructions:
        singles.append(instruction)
        positions, region = instruction.positions, instruction.region
        if instruction.name in VERSION.local_pairs:
            first, second = instruction.argument
            instruction.name, other = VERSION.local_pairs[instruction.name]
            instruction.argument = first
            singles.append(Instruction(other, second, positions, region))
        elif instruction.name == "COMPARE_OP_TO_BOOL":
            instruction.name = "COMPARE_OP"
            singles.append(Instruction("TO_BOOL", positions=positions, region=region))
    return singles


def _read_encoded(bytecode: bytes) -> Iterator[tuple[int, int, Encoding, int]]:
    """Each instruction: start and end in code units, encoding, and operand without flag bits."""
    start = position = operand = 0
    while position < len(bytecode):
        number = bytecode[position]
        operand = operand << 8 | bytecode[position + 1]
        position += 2
        if number == opcode.EXTENDED_ARG:
            continue

        shift, encodings = OPERATIONS.by_opcode[number]
        encoding = encodings[operand & ((1 << shift) - 1)]
        position += 2 * encoding.caches
        yield start, position // 2, encoding, operand >> shift
        start, operand = position // 2, 0


def _resolve(
    instruction: Instruction,
    encoding: Encoding,
    operand: int,
    code: CodeType,
    variables: _Variables,
) -> None:
    """Fill in what `operand` stands for, and the name where the operand decides it."""
    match encoding.operand:
        case Operand.NONE | Operand.FREE_COUNT:
            pass
        case Operand.INTEGER:
            instruction.argument = operand
        case Operand.CONSTANT:
            instruction.argument = code.co_consts[operand]
        case Operand.NAME:
            instruction.argument = code.co_names[operand]
        case Operand.LOCAL:
            if VERSION.closure_is_local_load and variables.holds_cell(instruction.name, operand):
                instruction.name = "LOAD_CLOSURE"
            instruction.argument = variables.names[operand]
        case Operand.CELL:
            instruction.argument = variables.names[operand]
        case Operand.LOCAL_PAIR:
            first, second = divmod(operand, 16)
            instruction.argument = (variables.names[first], variables.names[second])
        case Operand.COMPARISON:
            instruction.name, instruction.argument = _COMPARISONS[operand]
        case Operand.BINARY_OPERATOR:
            instruction.argument = BINARY_OPERATORS[operand]
        case Operand.JUMP:
            raise AssertionError("jumps are resolved when every instruction is known")


class _Variables:
    """The slots of a frame: locals, then cells that are not locals too, then free variables."""

    def __init__(self, code: CodeType) -> None:
        own_cells = [name for name in code.co_cellvars if name not in code.co_varnames]
        self.names: tuple[str, ...] = (*code.co_varnames, *own_cells, *code.co_freevars)
        self.cells = frozenset(code.co_cellvars)
        self.local_count = len(code.co_varnames)

    def holds_cell(self, name: str, slot: int) -> bool:
        """Whether a load of `slot` finds a cell there."""
        is_cell = slot >= self.local_count or self.names[slot] in self.cells
        return name == "LOAD_FAST" and is_cell


def handles_exceptions(code: CodeType) -> bool:
    """Whether code has a handler that its source has too: of `try`, `with` or `async with`. Those
    begin by pushing the exception. CPython's own do not: from 3.12 on it puts one around each
    generator, against StopIteration, each `yield from` and each comprehension; their rows in the
    table are as many as the regions of the code that end apart from each other.
    """
    instructions = code.co_code
    return any(
        instructions[_CODE_UNIT_BYTES * entry.handler] == _PUSH_EXCEPTION
        for entry in decode_exceptions(code.co_exceptiontable)
    )


_CODE_UNIT_BYTES: Final = 2
_PUSH_EXCEPTION: Final = opcode.opmap["PUSH_EXC_INFO"]


def _mark_regions(code: CodeType, at_offset: dict[int, Instruction]) -> None:
    """Give each instruction its exception region; table rows that agree are one region."""
    regions: dict[tuple[Any, ...], ExceptionRegion] = {}
    for entry in decode_exceptions(code.co_exceptiontable):
        key = (entry.handler, entry.stack_depth, entry.saves_offset)
        if key not in regions:
            handler = at_offset[entry.handler]
            regions[key] = ExceptionRegion(handler, entry.stack_depth, entry.saves_offset)
        for offset in range(entry.start, entry.end):
            if offset in at_offset:
                at_offset[offset].region = regions[key]
