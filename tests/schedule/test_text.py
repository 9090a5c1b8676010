"""The text of steps between passes: it reads back as what was printed, and illegal steps are
refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from fusewright.context import CompileContext
from fusewright.ir.limits import limits_of_cpu
from fusewright.ir.program import Program
from fusewright.ir.text import print_program, print_schedule
from fusewright.schedule import PASSES, schedule
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.nest import Nest, Step
from fusewright.schedule.schedule import (
    finished,
    run_program_passes,
    run_step_passes,
    simplified_steps,
)
from fusewright.schedule.text import parse_steps, print_steps
from fusewright.schedule.verify import verify_steps
from tests.golden import golden
from tests.schedule.programs import programs
from tests.schedule.test_equivalence import relaxed


@golden("cases/steps_text.txt")
def test_round_trip(text: str) -> str:
    program, steps, analysis = parse_steps(text)
    assert steps is not None
    verify_steps(program, steps, analysis)
    return print_steps(steps)


@golden("cases/steps_verify.txt")
def test_refusals(text: str) -> str:
    program, steps, analysis = parse_steps(text)
    assert steps is not None
    verify_steps(program, steps, analysis)
    return "legal"


@pytest.mark.parametrize("symbolic", [False, True])
def test_steps_read_back_after_each_pass(symbolic: bool) -> None:
    """And passes go on from what was read as they do from what was printed."""
    met = Counter[str]()

    @given(programs(symbolic=symbolic))
    @settings(relaxed, max_examples=40)
    def check(program: Program) -> None:
        expected = print_schedule(schedule(program, CompileContext()))

        def observe(name: str, program: Program, steps: Sequence[Step | None] | None) -> None:
            if steps is None:
                return
            verify_steps(program, steps, analysis)
            text = print_steps(steps)
            again, read, own = parse_steps(print_program(program) + text)
            assert read is not None and print_steps(read) == text
            assert print_program(again) == print_program(program)
            rest = PASSES[PASSES.index(name) + 1 :]
            graph = run_step_passes(again, read, own, rest)
            assert print_schedule(finished(again, graph)) == expected
            nests = [step for step in steps if isinstance(step, Nest)]
            met.update({piece.kind for nest in nests for piece in nest.pieces})
            met.update(fused=any(len(n.pieces) > 1 for n in nests))

        analysis = Analysis(program, limits_of_cpu)
        changed = run_program_passes(program, analysis, PASSES)
        run_step_passes(changed, simplified_steps(changed, analysis), analysis, PASSES, observe)

    check()
    assert met["store"] and met["scatter"] and met["sum"] and met["fused"], met
