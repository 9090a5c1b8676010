"""Random programs and their schedules: they are legal, read back, and rename canonically."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusewright.context import CompileContext
from fusewright.ir.canonical import canonical_group, canonical_names
from fusewright.ir.group import Group
from fusewright.ir.parse import parse_program, parse_schedule
from fusewright.ir.program import Program
from fusewright.ir.text import print_program, print_schedule, work_rows
from fusewright.ir.verify import verify_program, verify_schedule
from fusewright.schedule import schedule
from tests.schedule.programs import programs

relaxed = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@relaxed
@given(st.booleans().flatmap(lambda symbolic: programs(symbolic=symbolic)))
def test_random_programs(program: Program) -> None:
    verify_program(program)
    text = print_program(program)
    assert print_program(parse_program(text)) == text
    planned = schedule(program, CompileContext())
    verify_schedule(planned)
    text = print_schedule(planned)
    assert print_schedule(parse_schedule(text)) == text
    for step in planned.works:
        if isinstance(step, Group):
            canonical = canonical_names(step)
            renamed = canonical_group(step, canonical)
            assert work_rows(renamed) == work_rows(step, canonical.names, canonical.stages)
