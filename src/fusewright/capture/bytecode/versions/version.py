"""The differences between CPython versions, as fields of one record that each version fills in."""

from __future__ import annotations

import opcode
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from fusewright.records import field, record, replace

Emission = tuple[str, Any]
"""An instruction's name and argument."""

Effect = tuple[int, int] | Callable[[Any], tuple[int, int]]
"""Values that an instruction takes off the stack, and leaves there, given its argument."""


CLOSURE = 8
"""The bit that says, where a function is made, that it has cells."""


class Operand(Enum):
    """The meaning of an operation's operand, which decides how it is encoded and decoded."""

    NONE = auto()
    INTEGER = auto()
    CONSTANT = auto()
    NAME = auto()
    LOCAL = auto()
    LOCAL_PAIR = auto()
    """Two locals in one byte, four bits each."""

    CELL = auto()
    """A cell variable or free variable."""

    JUMP = auto()
    COMPARISON = auto()
    BINARY_OPERATOR = auto()
    FREE_COUNT = auto()
    """The number of free variables, which the code unit knows: no argument is held."""


@record
class Encoding:
    """One way in which CPython writes an operation."""

    name: str
    """The name of `Instruction.name`."""

    opcode: int
    operand: Operand
    caches: int
    """Code units of inline cache that follow the instruction."""

    shift: int = 0
    """Operand bits below the operand proper, which hold `bits`."""

    bits: int = 0
    backward: bool = False
    """Whether a jump's operand counts towards the start of the code."""


@record(kw_only=True)
class Version:
    """One CPython version: its encoding of programs as tables, its call sequences as functions."""

    caches: Mapping[str, int]
    """Code units of inline cache, by CPython's name; none where absent."""

    packed: Mapping[str, tuple[int, Mapping[int, str]]]
    """CPython's name -> number of flag bits below the operand, and our name for each of their
    values."""

    jumps: Mapping[str, tuple[str | None, str | None]]
    """Our name of a jump -> CPython's names for it forward and backward, or None."""

    jumps_estimated_by_index: bool
    """The compiler first takes a jump's operand to be the index of its target, otherwise 0: of
    several stable layouts it may arrive at another."""

    local_pairs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Operations on two locals at once -> the two operations that do the same."""

    comparisons: Mapping[tuple[str, str], int]
    """Our name of a comparison and its operator -> the operand of `COMPARE_OP`."""

    closure_is_local_load: bool = False
    """`LOAD_CLOSURE` is written as a `LOAD_FAST` of the cell's slot."""

    merges_locations: bool
    """Neighbours of the same position share an entry of the location table."""

    minimum_stack_size: int
    checked_local_load: str
    """The load of a local that raises UnboundLocalError, where `LOAD_FAST` may crash instead."""

    null_above_callable: bool
    """A call finds NULL above the callable rather than below it."""

    raises_before_calls: bool = False
    """The region of what a called function raises is looked up one code unit before the call."""

    effects: Mapping[str, Effect] = field(default_factory=dict)
    """Our name of an operation -> its effect on the stack, where it is this version's own."""

    effects_when_jumping: Mapping[str, Effect] = field(default_factory=dict)
    """Our name of an operation -> its effect on the stack when it jumps, where that is another."""

    skipped_at_loop_end: tuple[str, ...] = ()
    """Instructions at the target of `FOR_ITER` that it jumps over."""

    call: Callable[[int, tuple[str, ...]], Sequence[Emission]]
    """Argument count, names of the last ones -> what comes after the arguments."""

    make_closure: Sequence[Emission]
    """Emits the instructions that make a function of the cells and the code object on the stack."""


BINARY_OPERATORS: tuple[str, ...] = (
    "+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^",
    "+=", "&=", "//=", "<<=", "@=", "*=", "%=", "|=", "**=", ">>=", "-=", "/=", "^=",
)  # fmt: skip
"""Operators in the order of `BINARY_OP`'s operand."""


@record
class OperationTable:
    """A version's encodings, found by name to write and by opcode to read."""

    forward: Mapping[str, Encoding]
    """Every operation but jumps that only go back."""

    backward: Mapping[str, Encoding]
    """The jumps that can go back."""

    by_opcode: Mapping[int, tuple[int, Mapping[int, Encoding]]]
    """Opcode -> number of flag bits, and the encoding for each value of them."""


def build_operation_table(version: Version) -> OperationTable:
    """Every operation of the running interpreter, from its `opcode` lists and `version`."""
    forward: dict[str, Encoding] = {}
    backward: dict[str, Encoding] = {}
    by_opcode: dict[int, tuple[int, dict[int, Encoding]]] = {}

    jump_names = _jump_names(version)
    for cpython_name, number in opcode.opmap.items():
        if number > 255 or number == opcode.EXTENDED_ARG:
            continue
        operand = _operand_of(cpython_name, number, version)
        caches = version.caches.get(cpython_name, 0)
        name, is_backward = jump_names.get(cpython_name, (cpython_name, False))
        shift, names = version.packed.get(cpython_name, (0, {0: name}))

        encodings = {
            bits: Encoding(variant, number, operand, caches, shift, bits, is_backward)
            for bits, variant in names.items()
        }
        by_opcode[number] = (shift, encodings)
        direction = backward if is_backward else forward
        for encoding in encodings.values():
            direction.setdefault(encoding.name, encoding)

    if version.closure_is_local_load:
        load = opcode.opmap["LOAD_FAST"]
        forward["LOAD_CLOSURE"] = Encoding("LOAD_CLOSURE", load, Operand.CELL, 0)
    for name, _ in version.comparisons:
        compare = forward["COMPARE_OP"]
        forward[name] = replace(compare, name=name)
    for name, (ahead, _) in version.jumps.items():
        if ahead is not None:
            number = opcode.opmap[ahead]
            caches = version.caches.get(ahead, 0)
            forward[name] = Encoding(name, number, Operand.JUMP, caches)
    return OperationTable(forward, backward, by_opcode)


def _jump_names(version: Version) -> dict[str, tuple[str, bool]]:
    """CPython's name of a jump -> our name, and whether it goes back."""
    names: dict[str, tuple[str, bool]] = {}
    for name, (ahead, back) in version.jumps.items():
        if ahead is not None:
            names.setdefault(ahead, (name, False))
        if back is not None:
            names[back] = (name, True)
    return names


def _operand_of(cpython_name: str, number: int, version: Version) -> Operand:
    """The meaning of an operation's operand, from the interpreter's own lists."""
    if cpython_name == "COPY_FREE_VARS":
        return Operand.FREE_COUNT
    if cpython_name == "BINARY_OP":
        return Operand.BINARY_OPERATOR
    if cpython_name in version.local_pairs:
        return Operand.LOCAL_PAIR

    kinds = (
        (opcode.hasconst, Operand.CONSTANT),
        (opcode.hasname, Operand.NAME),
        (opcode.haslocal, Operand.LOCAL),
        (opcode.hasfree, Operand.CELL),
        (opcode.hasjrel, Operand.JUMP),
        (opcode.hascompare, Operand.COMPARISON),
    )
    for numbers, operand in kinds:
        if number in numbers:
            return operand
    return Operand.INTEGER if number >= opcode.HAVE_ARGUMENT else Operand.NONE
