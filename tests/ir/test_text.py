"""The text form: what is printed reads back and prints the same, for every construct."""

from __future__ import annotations

from fusewright.ir.canonical import canonical_group, canonical_names, structural_text
from fusewright.ir.forms import print_lines
from fusewright.ir.parse import parse_group, parse_program, parse_schedule
from fusewright.ir.parse_forms import parse_lines
from fusewright.ir.text import print_group, print_program, print_schedule, work_rows
from tests.golden import golden


@golden("cases/program_text.txt")
def test_programs_round_trip(text: str) -> str:
    printed = print_program(parse_program(text))
    assert print_program(parse_program(printed)) == printed
    return printed


@golden("cases/group_text.txt")
def test_groups_round_trip(text: str) -> str:
    printed = print_group(parse_group(text))
    assert print_group(parse_group(printed)) == printed
    return printed


@golden("cases/schedule_text.txt")
def test_schedules_round_trip(text: str) -> str:
    printed = print_schedule(parse_schedule(text))
    assert print_schedule(parse_schedule(printed)) == printed
    return printed


@golden("cases/lines_text.txt")
def test_lines_round_trip(text: str) -> str:
    lines = parse_lines(text)
    printed = print_lines(lines)
    assert parse_lines(printed) == lines
    return printed


@golden("cases/canonical.txt")
def test_canonical_names(text: str) -> str:
    group = parse_group(text)
    canonical = canonical_names(group)
    renamed = canonical_group(group, canonical)
    assert work_rows(renamed) == work_rows(group, canonical.names, canonical.stages)
    assert work_rows(parse_group(print_group(renamed))) == work_rows(renamed)
    return structural_text(group, canonical)
