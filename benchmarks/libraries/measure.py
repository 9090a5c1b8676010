"""One program, eagerly and compiled, in a process of its own; the command starts it and reads the
JSON that it prints.

    python -m benchmarks.libraries.measure COLUMN NAME
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.compilers import EAGER
from benchmarks.libraries.columns import COLUMNS, Figures
from benchmarks.libraries.comparison import differences
from benchmarks.libraries.program import Program, Run, programs
from benchmarks.sampling import take_turns

WARM_CALLS = 120
"""Calls after which a program is in its steady state."""

WARM_SECONDS = 6.0
"""Time for those calls, though the first few are made whatever they take."""

SECONDS = 1.2
"""Time for the interleaved calls of one attempt."""

ATTEMPTS = 2
COMPILED = "compiled"
FAST_ENOUGH = 0.95
"""Of eager's speed; a program that does not reach it is timed again."""


def measure(column: str, program: Program) -> Figures:
    """All figures of a program under a compiler; `failure` in place of those that could not be
    had.
    """
    if program.missing is not None:
        return {"missing": program.missing}
    figures: Figures = {}
    try:
        _measure(column, program, figures)
    except Exception as error:
        figures["failure"] = f"{type(error).__name__}: {error}"
        figures["traceback"] = traceback.format_exc().splitlines()[-30:]
    return figures


def _measure(column: str, program: Program, figures: Figures) -> None:
    eager = _built(program, lambda target, **_: target)
    expected, figures["eager_warnings"] = _results(eager, program.calls)

    with COLUMNS[column]() as compiler:
        compiled = _built(program, compiler.compile)
        start = time.perf_counter()
        found, told = _results(compiled, 1)
        figures["first_call"] = time.perf_counter() - start
        rest, more = _results(compiled, program.calls, first=1)
        figures["warnings"] = [one for one in told + more if one not in figures["eager_warnings"]]
        figures["wrong"] = list(differences(found + rest, expected, program.tolerance))
        figures["later_calls"] = _warm_up(compiled)
        for _ in range(figures["later_calls"]):
            eager()  # which changes the same state as often
        wrong_when_warm = _compare_once(program, eager, compiled)
        figures["wrong"] += [f"when warm, {text}" for text in wrong_when_warm]
        compiles = compiler.compiles()
        figures |= compiler.told() | {"compiles": compiles}
        figures |= _speed(eager, compiled)
        figures["late_compiles"] = compiler.compiles() - compiles


def _built(program: Program, compile: Callable[..., Any]) -> Run:
    torch.manual_seed(0)
    return program.build(compile)


def _results(run: Run, calls: int, first: int = 0) -> tuple[list[Any], list[str]]:
    """What calls return, and what was warned of."""
    with _listening() as told:
        results = []
        for number in range(first, calls):
            torch.manual_seed(100 + number)
            results.append(run())
    return results, told


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Warnings, and what fusewright logs as one."""
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    listener = Listener(logging.WARNING)
    logger = logging.getLogger("fusewright")
    logger.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield told
        told += [f"{one.category.__name__}: {one.message}" for one in caught]
    finally:
        logger.removeHandler(listener)


def _warm_up(run: Run) -> int:
    """Call it again and again, as a program would; how often that was."""
    end = time.perf_counter() + WARM_SECONDS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(WARM_CALLS):
            if number >= 4 and time.perf_counter() > end:
                return number
            run()
    return WARM_CALLS


def _compare_once(program: Program, eager: Run, compiled: Run) -> list[str]:
    expected, _ = _results(eager, 1)
    found, _ = _results(compiled, 1)
    return list(differences(found, expected, program.tolerance * 10))


def _speed(eager: Run, compiled: Run) -> Figures:
    """Median seconds a call, of the attempt in which compiled code did best."""
    attempts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(ATTEMPTS):
            samples = take_turns({EAGER: eager, COMPILED: compiled}, SECONDS)
            medians = {column: statistics.median(samples[column]) for column in samples}
            attempts.append({"eager": medians[EAGER], "call": medians[COMPILED]})
            if medians[EAGER] >= FAST_ENOUGH * medians[COMPILED]:
                break
    return max(attempts, key=lambda one: one["eager"] / one["call"])


if __name__ == "__main__":
    column, name = sys.argv[1:]
    result = measure(column, programs()[name])
    print(json.dumps(result), flush=True)
