"""Put a `CodeUnit` together into a code object."""

from __future__ import annotations

import opcode
from collections.abc import Iterator
from itertools import count
from types import CodeType
from typing import Any

from fusewright.capture.bytecode.instruction import (
    LABEL,
    CodeUnit,
    ExceptionRegion,
    Instruction,
    OffsetOf,
    Positions,
)
from fusewright.capture.bytecode.stack import stack_size
from fusewright.capture.bytecode.tables import (
    ExceptionEntry,
    encode_exceptions,
    encode_locations,
    merge_locations,
)
from fusewright.capture.bytecode.versions import (
    BINARY_OPERATORS,
    OPERATIONS,
    VERSION,
    Encoding,
    Operand,
)
from fusewright.errors import InvalidBytecode
from fusewright.records import record


def assemble(unit: CodeUnit) -> CodeType:
    """A code object for `unit`, with operands, tables and stack size computed.

    Raises `InvalidBytecode` for an unknown operation, variable or operator, a jump or region whose
    target is not in the unit, a jump that CPython cannot make in that direction, and a stack whose
    depth does not add up.
    """
    pools = _Pools(unit)
    index_of = {instruction: index for index, instruction in enumerate(unit.instructions)}
    items = [
        _prepare(unit, index, instruction, pools, index_of)
        for index, instruction in enumerate(unit.instructions)
    ]
    starts = _lay_out(items)
    constants = [_resolved(unit, value, items, starts, index_of) for value in pools.constants]
    bytecode = b"".join(_encode(item) for item in items)

    return CodeType(
        unit.argument_count,
        unit.positional_only_count,
        unit.keyword_only_count,
        len(pools.local_names),
        stack_size(unit),
        unit.flags,
        bytecode,
        tuple(constants),
        tuple(pools.names),
        tuple(pools.local_names),
        unit.filename,
        unit.name,
        unit.qualified_name,
        unit.first_line,
        _location_table(unit, items),
        encode_exceptions(_exception_entries(unit, starts, index_of)),
        unit.free_names,
        unit.cell_names,
    )


# Names and values to numbers.


class _Pools:
    """The positions of constants, names and variables in the new code object."""

    def __init__(self, unit: CodeUnit) -> None:
        self.unit = unit
        self.constants: list[Any] = list(unit.constants)
        self.names: list[str] = list(unit.names)
        self.local_names = _local_names(unit)

        self._constant_identities = {id(value): i for i, value in enumerate(self.constants)}
        self._constant_keys: dict[Any, int] = {}
        for position, value in enumerate(self.constants):
            self._constant_keys.setdefault(_constant_key(value), position)
        self._name_positions = {name: position for position, name in enumerate(self.names)}

        own_cells = [name for name in unit.cell_names if name not in self.local_names]
        after_locals = (*own_cells, *unit.free_names)
        self._local_slots = {name: slot for slot, name in enumerate(self.local_names)}
        self._cell_slots = {
            name: slot for slot, name in enumerate(after_locals, start=len(self.local_names))
        }
        for name in unit.cell_names:
            self._cell_slots.setdefault(name, self._local_slots.get(name, -1))

    def constant(self, value: Any) -> int:
        """The position of `value`; the same object, or an equal one of equal type, shares it."""
        position = self._constant_identities.get(id(value))
        if position is None:
            position = self._constant_keys.setdefault(_constant_key(value), len(self.constants))
        if position == len(self.constants):
            self.constants.append(value)
        return position

    def name(self, name: str) -> int:
        """The position of a global or attribute name."""
        position = self._name_positions.setdefault(name, len(self.names))
        if position == len(self.names):
            self.names.append(name)
        return position

    def local(self, name: str) -> int:
        """The slot of a local; instructions on locals may also move the cells of cell variables."""
        slot = self._local_slots.get(name, self._cell_slots.get(name))
        assert slot is not None, "_local_names has collected every local"
        return slot

    def cell(self, name: str) -> int:
        """The slot of a cell variable or free variable."""
        if name not in self._cell_slots:
            raise InvalidBytecode(
                f"{self.unit.qualified_name}: {name!r} is neither a cell name nor a free name"
            )
        return self._cell_slots[name]


def _local_names(unit: CodeUnit) -> list[str]:
    """The unit's locals and those that only its instructions mention, in order of use."""
    names = dict.fromkeys(unit.local_names)
    elsewhere = {*unit.cell_names, *unit.free_names}
    for instruction in unit.instructions:
        encoding = OPERATIONS.forward.get(instruction.name)
        match encoding and encoding.operand, instruction.argument:
            case Operand.LOCAL, str(name) if name not in elsewhere:
                names.setdefault(name)
            case Operand.LOCAL_PAIR, (first, second):
                names.setdefault(first)
                names.setdefault(second)
    return list(names)


def _constant_key(value: Any) -> Any:
    """A key that tells apart what `==` does not: 0.0 and -0.0, 1 and True, also within tuples."""
    kind = type(value)
    if kind in (int, bool, str, bytes):
        return kind, value
    if kind in (float, complex):
        return kind, repr(value)
    if kind is tuple:
        return kind, tuple(_constant_key(item) for item in value)
    if kind is frozenset:
        return kind, frozenset(_constant_key(item) for item in value)
    return kind, id(value)


# Instructions to bytes.

_SHRINKING_ROUNDS = 8
"""Rounds of layout in which a jump may become shorter; CPython's own layouts take two or three."""


@record(frozen=False)
class _Item:
    """An instruction on its way to bytes."""

    encoding: Encoding | None
    """The encoding of the instruction; None for a label."""

    operand: int
    """The operand with its flag bits; that of a jump is known once the layout is."""

    size: int
    """The size in code units, caches and `EXTENDED_ARG`s included."""

    target: int | None = None
    """Index of the instruction that a jump goes to."""

    @property
    def extended(self) -> int:
        """The number of `EXTENDED_ARG`s before the instruction itself."""
        return self.size - 1 - self.encoding.caches if self.encoding else 0


def _prepare(
    unit: CodeUnit,
    index: int,
    instruction: Instruction,
    pools: _Pools,
    index_of: dict[Instruction, int],
) -> _Item:
    """Choose an instruction's encoding and its operand, but for the distance of a jump."""
    if instruction.name == LABEL:
        return _Item(None, 0, 0)
    if instruction.region is not None and instruction.region.handler not in index_of:
        raise _invalid(unit, index, "has its exception handler outside this unit")

    target = None
    encodings = OPERATIONS.forward
    if isinstance(instruction.argument, Instruction):
        target = index_of.get(instruction.argument)
        if target is None:
            raise _invalid(unit, index, "jumps to an instruction that is not in this unit")
        if target <= index:
            encodings = OPERATIONS.backward

    encoding = encodings.get(instruction.name)
    if encoding is None and encodings is OPERATIONS.backward:
        raise _invalid(unit, index, "cannot jump backwards; jump over a JUMP that does")
    if encoding is None:
        raise _invalid(unit, index, "is no operation of this Python version")
    if target is None and encoding.operand is Operand.JUMP:
        raise _invalid(unit, index, "needs an instruction to jump to")

    if target is not None:
        estimate = target if VERSION.jumps_estimated_by_index else 0
        return _Item(encoding, 0, _size(encoding, estimate), target)
    number = _operand_number(unit, index, instruction, encoding, pools)
    operand = number << encoding.shift | encoding.bits
    return _Item(encoding, operand, _size(encoding, operand))


def _operand_number(
    unit: CodeUnit, index: int, instruction: Instruction, encoding: Encoding, pools: _Pools
) -> int:
    """The number that stands for an instruction's argument, without flag bits."""
    argument = instruction.argument
    match encoding.operand:
        case Operand.NONE:
            return 0
        case Operand.FREE_COUNT:
            return len(unit.free_names)
        case Operand.INTEGER if isinstance(argument, int):
            return argument
        case Operand.CONSTANT:
            return pools.constant(argument)
        case Operand.NAME if isinstance(argument, str):
            return pools.name(argument)
        case Operand.LOCAL if isinstance(argument, str):
            return pools.local(argument)
        case Operand.CELL if isinstance(argument, str):
            return pools.cell(argument)
        case Operand.LOCAL_PAIR if isinstance(argument, tuple):
            first, second = argument
            return pools.local(first) << 4 | pools.local(second)
        case Operand.COMPARISON if (instruction.name, argument) in VERSION.comparisons:
            return VERSION.comparisons[instruction.name, argument]
        case Operand.BINARY_OPERATOR if argument in BINARY_OPERATORS:
            return BINARY_OPERATORS.index(argument)
    raise _invalid(unit, index, f"cannot take {argument!r} as its argument")


def _invalid(unit: CodeUnit, index: int, reason: str) -> InvalidBytecode:
    """An error about the instruction at `index`."""
    instruction = unit.instructions[index]
    return InvalidBytecode(f"{unit.qualified_name}: instruction {index} ({instruction!r}) {reason}")


def _size(encoding: Encoding, operand: int) -> int:
    """Code units that an instruction takes."""
    extended = max(0, (operand.bit_length() - 1) // 8)
    return extended + 1 + encoding.caches


def _lay_out(items: list[_Item]) -> list[int]:
    """Fix every jump's distance; return where each instruction starts, in code units, and the end.

    A jump's size depends on its distance and the distance on sizes, so this repeats until nothing
    changes. More than one layout may be stable; to arrive at that of CPython's compiler, sizes
    start as they do there and may shrink. After a few rounds they only grow, so that the end is
    certain.
    """
    for round_number in count():
        starts = [0]
        for item in items:
            starts.append(starts[-1] + item.size)

        changed = False
        for index, item in enumerate(items):
            if item.target is None or item.encoding is None:
                continue
            item.operand = abs(starts[item.target] - starts[index + 1])
            size = _size(item.encoding, item.operand)
            if round_number >= _SHRINKING_ROUNDS:
                size = max(size, item.size)
            changed |= size != item.size
            item.size = size
        if not changed:
            break
    return starts


def _resolved(
    unit: CodeUnit,
    constant: Any,
    items: list[_Item],
    starts: list[int],
    index_of: dict[Instruction, int],
) -> Any:
    """A constant as the code object holds it, once the layout is known."""
    if not isinstance(constant, OffsetOf):
        return constant
    index = index_of.get(constant.instruction)
    if index is None:
        raise InvalidBytecode(
            f"{unit.qualified_name}: the offset is asked of {constant.instruction!r}, which is not "
            f"in this unit"
        )
    return starts[index] + items[index].extended


def _encode(item: _Item) -> bytes:
    """The bytes of an instruction: `EXTENDED_ARG`s, opcode and operand, empty caches."""
    if item.encoding is None:
        return b""
    code = bytearray()
    for position in range(item.extended, 0, -1):
        code += bytes((opcode.EXTENDED_ARG, item.operand >> 8 * position & 0xFF))
    code += bytes((item.encoding.opcode, item.operand & 0xFF))
    return bytes(code) + bytes(2 * item.encoding.caches)


# The tables beside the bytes.


def _location_table(unit: CodeUnit, items: list[_Item]) -> bytes:
    """Source positions, in the granularity that this version's compiler uses."""
    spans: Iterator[tuple[int, Positions]] = (
        (item.size, instruction.positions)
        for item, instruction in zip(items, unit.instructions, strict=True)
        if item.encoding is not None
    )
    return encode_locations(
        merge_locations(spans) if VERSION.merges_locations else spans, unit.first_line
    )


def _exception_entries(
    unit: CodeUnit, starts: list[int], index_of: dict[Instruction, int]
) -> Iterator[ExceptionEntry]:
    """One entry for each run of neighbouring instructions in the same region."""
    current: ExceptionRegion | None = None
    start = 0
    for index, instruction in [*enumerate(unit.instructions), (len(unit.instructions), None)]:
        region = instruction.region if instruction else None
        if instruction and (instruction.name == LABEL or region is current):
            continue
        if current is not None:
            handler = starts[index_of[current.handler]]
            yield ExceptionEntry(
                start, starts[index], handler, current.stack_depth, current.saves_offset
            )
        current, start = region, starts[index]
