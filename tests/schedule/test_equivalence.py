"""A schedule computes what its program computes, whatever the program: by evaluating both."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from fusewright.context import CompileContext
from fusewright.ir.group import Group, Schedule
from fusewright.ir.limits import Limits
from fusewright.ir.program import CopyBack, Program
from fusewright.ir.verify import verify_schedule
from fusewright.schedule import schedule, split
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


EAGER_TO_SPLIT = Limits(
    parallel_points=4,
    reductions=12,
    longest_tile=3,
    lanes=4,
    chunks=9,
    shares_chunks=True,
    shortest_chunk=2,
    holds_rows=lambda group: False,
)
"""A GPU's limits, as small as the programs here."""


@pytest.mark.parametrize("symbolic", [False, True])
def test_random_programs_for_a_gpu(symbolic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reductions are cut, by rows and by columns; and no memory is taken over with rows."""
    monkeypatch.setattr(split, "LARGE", 1)
    cut = Counter[str]()

    @given(programs(symbolic=symbolic))
    @relaxed
    def check(program: Program) -> None:
        planned = schedule(program, CompileContext(), lambda device: EAGER_TO_SPLIT)
        verify_schedule(planned)
        for buffer in planned.program.buffers().values():
            if "_partial" in buffer.name:
                cut["all"] += 1
        for step in planned.works:
            if isinstance(step, Group) and any(local.size for local in step.locals):
                assert step.reuses == step.taken_over
        assert_equivalent(program, planned)

    check()
    assert cut["all"] > 20
