"""Passes of the scheduler run one by one on the text of a program: `fusewright opt`."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.context import CompileContext
from fusewright.ir.group import Schedule
from fusewright.ir.parse import parse_program
from fusewright.ir.verify import verify_program, verify_schedule
from fusewright.schedule import PASSES, schedule


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


def scheduled_by(text: str, passes: Sequence[str]) -> Schedule:
    """The schedule that a program for the CPU has after `passes`, verified after each of them and
    before the first: the scheduler runs anew with one pass more, since what passes give each other
    is no program.
    """
    verify_program(parse_program(text))
    for count in range(len(passes) + 1):
        planned = schedule(parse_program(text), CompileContext(), passes=passes[:count])
        verify_program(planned.program)
        verify_schedule(planned)
    return planned
