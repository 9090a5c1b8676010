"""The verifier: every invariant broken once, with its message; and what is proved of accesses."""

from __future__ import annotations

from typing import get_args

import pytest

from fusewright.errors import MalformedProgram
from fusewright.ir import lines
from fusewright.ir.forms import parts_of
from fusewright.ir.parse import parse_group, parse_program, parse_schedule
from fusewright.ir.parse_forms import parse_lines
from fusewright.ir.verify import verify_group, verify_program, verify_schedule
from fusewright.ir.verify_lines import verify_lines
from fusewright.ir.verify_values import Accesses
from tests.golden import golden


def counted(accesses: Accesses) -> str:
    return "\n".join((str(accesses), *accesses.rows))


@golden("cases/program_verify.txt")
def test_programs(text: str) -> str:
    return counted(verify_program(parse_program(text)))


@golden("cases/group_verify.txt")
def test_groups(text: str) -> str:
    return counted(verify_group(parse_group(text)))


@golden("cases/schedule_verify.txt")
def test_schedules(text: str) -> str:
    return counted(verify_schedule(parse_schedule(text)))


@golden("cases/lines_verify.txt")
def test_lines(text: str) -> str:
    verify_lines(parse_lines(text))
    return "legal"


@pytest.mark.parametrize(
    "line",
    [
        lines.CallExtern(
            operator="torch.add(x, 1)", arguments=(), keywords=(), results=(), is_tuple=False
        ),
        lines.CallUserTriton(name="f(x); g", arguments=()),
        lines.CallProgram(name="f if x else g", arguments=(), results=()),
        lines.CallProgram(name="f", arguments=(), results=("y = x; z",)),
        lines.Free(name="x; y"),
        lines.CheckNan(kernel="(*k)", values=()),
    ],
)
def test_lines_hold_no_text_of_a_target(line: lines.Line) -> None:
    with pytest.raises(MalformedProgram, match="is no name"):
        verify_lines((line, lines.Return(outputs=())))


def test_text_in_lines_is_for_users() -> None:
    """Fields of a free text: a device, a folder, a message, a hash. All others are names, operands,
    sizes and layouts, and a kernel's source, which is in the language that the kernel names.
    """
    free = {
        (cls.__name__, name)
        for cls in get_args(lines.Line)
        for part in parts_of(cls.form)
        for piece in part.pieces
        if piece.kind == "text"
        for name in piece.fields
    }
    assert free == {
        ("DefineDevice", "device"),
        ("DefineChoice", "key"),
        ("DebugPrint", "folder"),
        ("CheckFact", "message"),
    }
