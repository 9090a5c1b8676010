"""Stack effects agree with CPython's account, and code may begin anywhere with what they say."""

from __future__ import annotations

import importlib.util
import opcode
import types
from pathlib import Path

import pytest

from fusewright.capture.bytecode import (
    Builder,
    Instruction,
    OffsetOf,
    assemble,
    consumed,
    disassemble,
    new_unit,
    produced,
    skipped_by_jump,
    with_body,
)
from fusewright.capture.bytecode.operations import OPERATIONS as ROWS
from fusewright.capture.bytecode.versions import OPERATIONS
from fusewright.errors import InvalidBytecode

_specification = importlib.util.spec_from_file_location(
    "bytecode_round_trip", Path(__file__).with_name("round_trip.py")
)
assert _specification is not None and _specification.loader is not None
round_trip = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(round_trip)


@pytest.mark.parametrize("module_name", ["argparse", "asyncio.base_events", "contextlib", "typing"])
def test_effects_are_those_of_cpython(module_name: str) -> None:
    wrong = set()
    for code in round_trip.functions_of(module_name):
        wrong |= round_trip.wrong_effects(code)
    assert wrong == set()


def test_every_operation_has_an_effect() -> None:
    names = {*OPERATIONS.forward, *OPERATIONS.backward}
    plain = {name for name in names if not name.startswith("INSTRUMENTED_")}
    known = {name for name, row in ROWS.items() if row.effect is not None}
    assert plain - known <= {"RESERVED", "ENTER_EXECUTOR", "END_FOR"}
    assert {"CALL", "FOR_ITER"} <= plain


def test_what_lies_deeper_is_taken_and_left() -> None:
    assert (consumed(Instruction("COPY", 3)), produced(Instruction("COPY", 3), False)) == (3, 4)
    assert (consumed(Instruction("SWAP", 2)), produced(Instruction("SWAP", 2), False)) == (2, 2)
    append = Instruction("LIST_APPEND", 2)
    assert (consumed(append), produced(append, False)) == (3, 2)
    with pytest.raises(InvalidBytecode, match="no operation"):
        consumed(Instruction("LOAD_NOTHING"))


def test_a_loop_jumps_past_the_instructions_that_end_it() -> None:
    def loop(items):
        for _ in items:
            pass

    instructions = list(disassemble(loop.__code__).instructions)
    advance = next(item for item in instructions if item.name == "FOR_ITER")
    skipped = skipped_by_jump(advance)
    target = instructions.index(advance.argument)
    assert tuple(i.name for i in instructions[target : target + len(skipped)]) == skipped
    assert ("END_FOR" in opcode.opmap) == bool(skipped)
    assert skipped_by_jump(Instruction("JUMP", advance)) == ()


def test_code_that_begins_in_the_middle_of_another() -> None:
    """All instructions of a function behind a prologue that fills the stack and jumps: most are
    never reached, and its exception regions still hold.
    """

    def original(value, items):
        total = []
        with items:
            total = [value, *[item / 2 for item in (1, 2)]]
        try:
            total.append(value[0])
        except TypeError:
            total.append("caught")
        return total

    unit = disassemble(original.__code__)
    body = list(unit.instructions)
    start = next(
        index
        for index, item in enumerate(body)
        if item.name == "BINARY_SUBSCR" and item.region is not None
    )
    entry = Builder()
    entry.load_constant([])
    entry.store_local("total")
    entry.load_local("total")
    entry.emit("LOAD_METHOD", "append")
    entry.load_constant(7)
    entry.load_constant(0)
    entry.jump(body[start])
    resumed = with_body(
        unit, [*entry.instructions, *body[1:]], cell_names=(), free_names=unit.free_names
    )
    function = types.FunctionType(assemble(resumed), {})
    assert function(None, None) == ["caught"]


@pytest.mark.parametrize("distance", [0, 70_000])
def test_the_offset_of_an_instruction(distance: int) -> None:
    builder = Builder()
    builder.load_constant(1)
    marked = builder.emit("LOAD_CONST", OffsetOf(builder.instructions[0]))
    for _ in range(distance):
        builder.emit("NOP")
    late = builder.emit("LOAD_CONST", OffsetOf(marked))
    last = builder.emit("LOAD_CONST", 5)
    builder.emit("LOAD_CONST", OffsetOf(last))
    builder.build_tuple(5)
    builder.return_value()
    function = types.FunctionType(assemble(new_unit("offsets", builder.instructions)), {})
    assert function() == (1, 1, 2, 5, 4 + distance)
    assert late.argument.instruction is marked


def test_the_offset_of_an_instruction_behind_extended_arguments() -> None:
    builder = Builder()
    for value in range(300):
        builder.load_constant(str(value))
        builder.pop()
    extended = builder.emit("LOAD_CONST", "extended")
    builder.pop()
    builder.emit("LOAD_CONST", OffsetOf(extended))
    builder.return_value()
    code = assemble(new_unit("offsets", builder.instructions))
    offset = types.FunctionType(code, {})()
    assert code.co_code[2 * offset] == opcode.opmap["LOAD_CONST"]
    assert code.co_code[2 * offset - 2] == opcode.EXTENDED_ARG


def test_the_offset_of_an_instruction_elsewhere_is_refused() -> None:
    builder = Builder()
    builder.load_constant(OffsetOf(Instruction("NOP")))
    builder.return_value()
    with pytest.raises(InvalidBytecode, match="not in this unit"):
        assemble(new_unit("offsets", builder.instructions))
