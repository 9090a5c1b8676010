"""Passes of the scheduler run one by one on the text of a program: `fusewright opt`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from fusewright.config import Options
from fusewright.ir.group import Schedule
from fusewright.ir.limits import Limits, LimitsOf, limits_of_cpu
from fusewright.ir.program import Program
from fusewright.ir.text import print_program
from fusewright.ir.verify import verify_program
from fusewright.kernels.targets import Languages
from fusewright.passes import Pass
from fusewright.records import record
from fusewright.schedule import PASSES
from fusewright.schedule.nest import Nest, Step
from fusewright.schedule.schedule import (
    PROGRAM_PASSES,
    STEP_PASSES,
    finished,
    run_program_passes,
    run_step_passes,
    simplified_steps,
)
from fusewright.schedule.text import parse_steps, print_steps
from fusewright.schedule.verify import verify_steps


@record
class Optimized:
    """A program's text, run through passes."""

    after: tuple[tuple[str, str], ...]
    """Names of the passes that have run, each with the text after it: of the program, or, once
    there are nests, of the steps alone.
    """

    schedule: Schedule
    """The schedule that they give in the end."""


def chosen_passes(names: Sequence[str] | None, stop_after: str | None) -> tuple[str, ...]:
    """The passes to run, in the scheduler's order: those of `names`, or all, up to `stop_after`.
    Raises `ValueError` for a name that no pass has.
    """
    asked = (*(names or ()), *(() if stop_after is None else (stop_after,)))
    for name in asked:
        if name not in PASSES:
            raise ValueError(f"no pass is called {name!r}; there are {', '.join(PASSES)}")
    end = len(PASSES) if stop_after is None else PASSES.index(stop_after) + 1
    return tuple(name for name in PASSES[:end] if not names or name in names)


@functools.cache
def limits_of_any(device: str) -> Limits:
    """The limits of a device: of any CPU, not of this one, so that a text gives the same elsewhere;
    of another device those of its language.
    """
    if device == "cpu":
        return limits_of_cpu(device)
    return Languages(Options(multi_kernel="off")).limits_of(device)


def optimize(
    text: str,
    names: Sequence[str] | None = None,
    stop_after: str | None = None,
    limits_of: LimitsOf = limits_of_any,
) -> Optimized:
    """Run passes (`chosen_passes`) on a program, or on a program and the steps behind it. Verified
    before the first pass and after each. Where there are steps, passes that work on what comes
    before them are none of all; one that `names` has raises `ValueError`.

    Raises: MalformedProgram.
    """
    passes = chosen_passes(names, stop_after)
    program, steps, analysis = parse_steps(text, limits_of)
    late = _too_late(steps)
    if names and not late.isdisjoint(names):
        raise ValueError(f"{', '.join(late & {*names})} comes before such steps as the text has")
    passes = tuple(name for name in passes if name not in late)
    verify_program(program)
    after: list[tuple[str, str]] = []

    def observe(name: str, program: Program, steps: Sequence[Step | None] | None) -> None:
        if steps is None:
            verify_program(program)
            after.append((name, print_program(program)))
        else:
            verify_steps(program, steps, analysis)
            after.append((name, print_steps(steps)))

    if steps is None:
        program = run_program_passes(program, analysis, passes, observe)
        steps = simplified_steps(program, analysis)
    verify_steps(program, steps, analysis)
    graph = run_step_passes(program, steps, analysis, passes, observe)
    return Optimized(tuple(after), finished(program, graph))


def _too_late(steps: Sequence[Step | None] | None) -> frozenset[str]:
    """The passes that cannot run on steps: those over statements, and, once a nest has several
    pieces, those over single steps.
    """
    if steps is None:
        return frozenset()
    is_fused = any(isinstance(step, Nest) and len(step.pieces) > 1 for step in steps)
    return _names(PROGRAM_PASSES) | (_names(STEP_PASSES) if is_fused else frozenset())


def _names(passes: Iterable[Pass[Any, Any]]) -> frozenset[str]:
    return frozenset(scheduler_pass.name for scheduler_pass in passes)
