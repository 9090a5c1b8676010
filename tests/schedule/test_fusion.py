"""Golden tests of fusion: programs in, schedules out."""

from __future__ import annotations

from fusewright.context import CompileContext
from fusewright.ir.group import Group
from fusewright.ir.parse import parse_program
from fusewright.ir.text import print_group
from fusewright.schedule import schedule
from tests.golden import golden


@golden("cases/fusion.txt")
def test_fusion(text: str) -> str:
    steps = schedule(parse_program(text), CompileContext()).steps
    return "\n".join(print_group(s) if isinstance(s, Group) else f"{s.operator}\n" for s in steps)
