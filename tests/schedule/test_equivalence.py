"""A schedule computes what its program computes, whatever the program: by evaluating both."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusewright.context import CompileContext
from fusewright.ir.group import Group, Schedule
from fusewright.ir.limits import Limits
from fusewright.ir.parse import parse_program
from fusewright.ir.program import CopyBack, Program
from fusewright.ir.text import print_schedule
from fusewright.ir.verify import verify_schedule
from fusewright.schedule import parts, schedule, split
from fusewright.schedule.nest import Nest
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
    held_row=3,
    held_across=2,
    batches_launches=True,
    mirrors_rows=True,
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


PARTS = Limits(does_parts_at_once=True, held_row=12, parallel_points=2)


def test_random_programs_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are cut where masks divide them, inside and outside of reductions; what takes over
    memory does so element by element.
    """
    monkeypatch.setattr(parts, "SHORTEST_RUN", 1)
    counts = Counter[str]()
    apart = parts.apart

    def counted(nest: Nest, cut: parts.Cut) -> Nest:
        counts["outer" if cut.loop in nest.outer else "inner"] += 1
        return apart(nest, cut)

    monkeypatch.setattr(parts, "apart", counted)

    @given(st.booleans().flatmap(lambda symbolic: programs(symbolic=symbolic, joined=30)))
    @settings(relaxed, max_examples=60)
    def check(program: Program) -> None:
        planned = schedule(program, CompileContext(), lambda device: PARTS)
        verify_schedule(planned)
        assert_equivalent(program, planned)

    check()
    assert min(counts["outer"], counts["inner"]) > 5


@pytest.mark.parametrize("split_from", [1, 1 << 15])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(("rows", "length"), [(2, 4), (3, 12), (5, 36), (2, 37), (1, 3)])
def test_deviations_at_once(
    rows: int, length: int, across: bool, split_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squared deviations are gathered with the sum behind their mean where rows are not held; cut
    into equal chunks, or not at all.
    """
    monkeypatch.setattr(split, "LARGE", split_from)
    index = f"i0 + {rows}*r0" if across else f"{length}*i0 + r0"
    size = f"{length}, {rows}" if across else f"{rows}, {length}"
    program = parse_program(f"""program statistics(x: f32[{size}])
  s: f32[{rows}] = reduce sum [i0<{rows}] over [r0<{length}]
    t0 = load x[{index}]
    yield t0
  q: f32[{rows}] = reduce sum [i0<{rows}] over [r0<{length}]
    t0 = load x[{index}]
    t1 = load s[i0]
    t2 = div t1, {length}.0
    t3 = sub t0, t2
    t4 = mul t3, t3
    yield t4
  return s, q
""")
    planned = schedule(program, CompileContext(), lambda device: EAGER_TO_SPLIT)
    verify_schedule(planned)
    text = print_schedule(planned)
    has_fitting_chunks = length != 37 or split_from > 1
    assert ("welford" in text) == (has_fitting_chunks and length > 3)
    assert_equivalent(program, planned)
