"""New values of inputs are written in the inputs' own memory where nothing needs the old ones."""

from __future__ import annotations

import pytest

from fusewright.context import CompileContext
from fusewright.ir.parse import parse_program
from fusewright.ir.text import print_program
from fusewright.schedule import schedule

STEP = """\
program step(x: f32[8], g: f32[8])
  y: f32[8] = pointwise [i0<8]
    t0 = load x[i0]
    t1 = load g[i0]
    t2 = add t0, t1
    yield t2
{more}  mutation y of x
  return y{results}
"""

READ_BEFORE = """\
  z: f32[8] = pointwise [i0<8]
    t0 = load x[i0]
    t1 = mul t0, 2.0
    yield t1
"""

READ_BACKWARDS = """\
  z: f32[8] = pointwise [i0<8]
    t0 = load x[7 - i0]
    yield t0
"""

LIBRARY_CALL = "  z: f32[8] = extern aten.sort.default(g)\n"

CHECKED_INDEX = """\
  z: f32[8] = pointwise [i0<8]
    t0 = load g[i0]
    t1 = cast t0: i64
    k0 = indirect t1 below 8 check
    t2 = load g[k0]
    yield t2
"""


def in_place(more: str = "", results: str = "") -> dict[str, str]:
    program = parse_program(STEP.format(more=more, results=results))
    assert "mutation y of x" in print_program(program)
    steps = schedule(program, CompileContext()).steps
    return {written: read for step in steps for written, read in step.takes_over}


def test_a_step() -> None:
    assert in_place() == {"y": "x"}


def test_the_old_value_is_read_at_the_same_place() -> None:
    assert in_place(READ_BEFORE, ", z") == {"y": "x"}


def test_the_old_value_is_needed_elsewhere() -> None:
    assert in_place(READ_BACKWARDS, ", z") == {}


@pytest.mark.parametrize("more", [LIBRARY_CALL, CHECKED_INDEX], ids=["call", "index"])
def test_something_may_raise_afterwards(more: str) -> None:
    assert in_place(more, ", z") == {}


def test_the_old_value_is_a_result() -> None:
    assert in_place("", ", x") == {}
