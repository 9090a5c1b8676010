"""The verifier: every invariant broken once, with its message; and what is proved of accesses."""

from __future__ import annotations

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
