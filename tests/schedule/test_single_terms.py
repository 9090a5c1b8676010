"""Sums of which all terms but one are alike are what adding gives, without a loop."""

from __future__ import annotations

import math

import pytest

from fusewright.context import CompileContext
from fusewright.ir.group import Group, Reduce, Schedule
from fusewright.ir.parse import parse_program
from fusewright.schedule import schedule
from tests.schedule.evaluate import Evaluator

LABELS = [-101, -100, -1, 0, 3, 4, 5, 1 << 40]


@pytest.mark.parametrize("elsewhere", [0.0, 0.25, -3.0])
@pytest.mark.parametrize("length", [2, 5])
@pytest.mark.parametrize("order", ["t0, t1", "t1, t0"])
def test_sums(elsewhere: float, length: int, order: str) -> None:
    """For places within the loop and out of it, some of which count nowhere."""
    count = len(LABELS)
    program = parse_program(f"""program picked(labels: i64[{count}], g: f32[{count}])
  s: f32[{count}] = reduce sum [i0<{count}] over [r0<{length}]
    t0 = index r0: i64
    t1 = load labels[i0]
    t2 = eq {order}
    t3 = ne t1, -100
    t4 = bitwise_and t2, t3
    t5 = load g[i0]
    t6 = where t4, t5, {elsewhere}
    t7 = mul t6, t5
    yield t7
  return s
""")
    planned = schedule(program, CompileContext())
    data = {"labels": LABELS, "g": [0.5 + n for n in range(count)]}
    (expected,) = Evaluator(program, data).run_program(program)
    (found,) = Evaluator(program, data).run_schedule(planned)
    assert not adds_up(planned)
    assert all(map(math.isclose, found, expected))
    assert found[4] == (0.5 + 4) ** 2 + (length - 1) * elsewhere * 4.5 or length < 4


OTHERS = {
    "the loop is met elsewhere": """
    t2 = eq t0, t1
    t3 = load g[5*i0 + r0]
    t4 = cast t2: f32
    t5 = mul t3, t4
    yield t5""",
    "it is compared twice": """
    t2 = eq t0, t1
    t3 = eq t0, 2
    t4 = bitwise_or t2, t3
    t5 = cast t4: f32
    yield t5""",
    "several points are less": """
    t2 = lt t0, t1
    t3 = cast t2: f32
    yield t3""",
}


@pytest.mark.parametrize("term", OTHERS.values(), ids=OTHERS)
def test_others_are_added_up(term: str) -> None:
    program = parse_program(f"""program others(labels: i64[8], g: f32[8, 5])
  s: f32[8] = reduce sum [i0<8] over [r0<5]
    t0 = index r0: i64
    t1 = load labels[i0]{term}
  return s
""")
    assert adds_up(schedule(program, CompileContext()))


def adds_up(planned: Schedule) -> bool:
    groups = [work for work in planned.works if isinstance(work, Group)]
    stages = [stage for group in groups for stage in group.stages]
    return any(isinstance(action, Reduce) for stage in stages for action in stage.actions)
