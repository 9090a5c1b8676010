"""Sizes that a library call finds out: what depends on them comes behind it."""

from __future__ import annotations

import torch

from fusewright.context import CompileContext
from fusewright.ir.parse import parse_program
from fusewright.ir.program import NumberStatement
from fusewright.ir.reference import evaluate
from fusewright.ir.text import print_program
from fusewright.ir.verify import verify_program
from fusewright.schedule import schedule

TEXT = """\
program graph(u0 in [0, inf) hint 2, x: f32[8])
  mask: bool[8] = pointwise [i0<8]
    t0 = load x[i0]
    t1 = gt t0, 0.0
    yield t1
  y: f32[u0] = extern aten.masked_select.default(x, mask)
  u0 = size 0 of y
  z: i64[u0] = pointwise [i0<u0]
    t0 = index i0: i64
    yield t0
  return y, z, u0
"""


def test_what_depends_on_a_size_stays_behind_the_call_that_finds_it_out() -> None:
    program = parse_program(TEXT)
    verify_program(program)
    assert print_program(program) == TEXT
    assert not program.input_sizes
    steps = schedule(program, CompileContext()).works
    finding = [position for position, step in enumerate(steps) if isinstance(step, NumberStatement)]
    assert finding == [len(steps) - 2], "the loops over the new size are last"


def test_the_number_is_that_of_the_data() -> None:
    x = torch.tensor([1.0, -1.0, 2.0, 0.0, 3.0, -4.0, 5.0, 6.0])
    chosen, counted, number = evaluate(parse_program(TEXT), [x])
    assert number == 5
    assert torch.equal(chosen, x[x > 0]) and torch.equal(counted, torch.arange(5))
