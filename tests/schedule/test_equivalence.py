"""A schedule computes what its program computes, whatever the program: by evaluating both."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings

from fusewright.context import CompileContext
from fusewright.ir.group import Schedule
from fusewright.ir.program import CopyBack, Program
from fusewright.schedule import schedule
from tests.schedule.evaluate import Evaluator
from tests.schedule.programs import inputs_of, programs

relaxed = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def assert_equivalent(program: Program, planned: Schedule) -> None:
    data = inputs_of(program)
    targets = [s.target for s in program.statements if isinstance(s, CopyBack)]
    before = Evaluator(program, data)
    expected = before.run_program(program) + [before.elements(target) for target in targets]
    for renamed in (False, True):
        after = Evaluator(program, data)
        results = after.run_schedule(planned, renamed=renamed)
        results += [after.elements(target) for target in targets]
        for wanted, got in zip(expected, results, strict=True):
            assert len(wanted) == len(got)
            for x, y in zip(wanted, got, strict=True):
                assert math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-6) or (x != x and y != y)


@given(programs())
@relaxed
def test_random_programs(program: Program) -> None:
    assert_equivalent(program, schedule(program, CompileContext()))


@given(programs(symbolic=True))
@relaxed
def test_random_programs_with_symbolic_sizes(program: Program) -> None:
    assert_equivalent(program, schedule(program, CompileContext()))
