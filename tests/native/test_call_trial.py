"""Calls run as they are written where that is faster, found out on the calls themselves. Without
torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from tests.native.extension import extension

FAST, SLOW = 2e-5, 4e-4


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert not extension.is_installed()


class Way:
    """One of two ways to run a call, which takes so long; counts its calls."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = 0

    def run(self, result: Any) -> Any:
        self.calls += 1
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        if isinstance(result, Exception):
            raise result
        return result


def call(written: Way, compiled: Way, result: Any) -> Any:
    return written.run(result)


def replacement(written: Way, compiled: Way, result: Any) -> Any:
    return compiled.run(result)


class Program:
    """A function that a frame compiler replaces."""

    def __init__(
        self,
        written: float,
        compiled: float,
        tried: bool = True,
        replacement: FunctionType = replacement,
        hooks: Callable[[bool], Any] | None = None,
    ) -> None:
        self.written, self.compiled = Way(written), Way(compiled)
        self.entries: list[Any] = []
        self.asked = 0

        def compile(frame: Any) -> Any:
            self.asked += 1
            if frame.code is not call.__code__:
                return False  # This call holds nothing to compile; another one may.
            kind = (("type", type(frame.locals["result"])),)
            guards = extension.GuardProgram(("result",), ((0, ("local", "result"), kind),))
            entry = extension.Entry(replacement, guards, continues=True, tried=tried, hooks=hooks)
            self.entries.append(entry)
            return entry

        self.compiler = extension.FrameCompiler(compile)

    def call(self, times: int, result: Any = 7) -> None:
        for _ in range(times):
            assert self.compiler.call(call, (self.written, self.compiled, result), {}) is result


def tried(written: float, compiled: float, result: Any) -> Program:
    """A program whose trial has come to its end. One call that takes long, on a machine that does
    something else meanwhile, puts the next trial off for many calls: then another is tried.
    """
    for _ in range(20):
        program = Program(written, compiled)
        program.call(24, result)
        assert program.written.calls == 0
        program.call(56, result)
        if program.entries[0].outcome is not None:
            return program
    raise AssertionError("no trial comes to its end")


# Of an integer it is known that it has no history; of other objects it is not, and whole rounds
# from call to call are timed.
Results = pytest.mark.parametrize("result", [7, (7, None, [7.0]), "text"])


@Results
def test_calls_that_are_faster_as_written_run_so(result: Any) -> None:
    program = tried(FAST, SLOW, result)
    runs_written, compiled_time, written_time, whole = program.entries[0].outcome
    assert runs_written and written_time < compiled_time
    assert whole == (result == "text")
    before = program.compiled.calls
    program.call(100, result)
    assert program.compiled.calls == before


@Results
def test_calls_that_are_faster_compiled_stay_so(result: Any) -> None:
    programs = [tried(SLOW, FAST, result) for _ in range(5)]
    assert not any(program.entries[0].outcome[0] for program in programs)
    fewest = min(program.written.calls for program in programs)
    assert 0 < fewest < 10, "a clear case takes few calls"
    program = programs[0]
    before = program.written.calls
    program.call(40, result)
    assert program.written.calls == before


def test_a_trial_is_made_again() -> None:
    program = tried(FAST, SLOW, 7)
    assert program.entries[0].outcome[0] is True
    program.written.seconds = 0
    before = program.compiled.calls
    while program.compiled.calls == before:  # Compiled code runs again when it is tried again.
        program.call(1)
        assert program.written.calls < 256 * 110
    program.written.seconds, program.compiled.seconds = SLOW, FAST
    program.call(200)
    assert program.entries[0].outcome[0] is False


def test_guards_are_not_checked_for_an_entry_that_no_call_reaches() -> None:
    program = Program(FAST, SLOW)
    program.call(1, 7.0)  # compiled, and never tried
    program.call(80, 7)
    assert program.entries[1].outcome[0] is True
    assert share_compiled(program, 7.0) == 1, "each call's guards are checked"
    program.written.seconds = 0
    program.call(1200, 7)
    assert share_compiled(program, 7.0) < 0.5, "most calls run as written unchecked"


def share_compiled(program: Program, result: Any) -> float:
    before = program.compiled.calls
    program.call(10, result)
    return (program.compiled.calls - before) / 10


def test_entries_that_are_not_tried_always_run() -> None:
    program = Program(FAST, SLOW, tried=False)
    program.call(80)
    assert program.written.calls == 0
    assert program.entries[0].outcome is None


def test_each_call_runs_once_and_what_it_raises_is_raised() -> None:
    program = Program(FAST, SLOW)
    for number in range(200):
        if number % 3:
            program.call(1)
            continue
        with pytest.raises(ValueError):
            program.call(1, ValueError())
    assert program.written.calls + program.compiled.calls == 200


def replacement_that_calls_others(written: Way, compiled: Way, result: Any) -> Any:
    return helper(compiled.run(result))


def helper(result: Any) -> Any:
    return result


def test_a_trial_does_not_wait_for_functions_that_hold_nothing() -> None:
    program = Program(FAST, SLOW, replacement=replacement_that_calls_others)
    program.call(24)
    assert program.asked > 8, "the compiler was asked about the helper again and again"
    program.call(3)  # of which two at most run compiled, whatever time they take
    assert program.written.calls > 0


@pytest.mark.parametrize("hooked_from", [0, 30, 90], ids=["first", "trial", "outcome"])
def test_calls_whose_saved_tensors_go_through_hooks_run_compiled(hooked_from: int) -> None:
    """They are not timed either, and calls that come afterwards are tried on."""
    hooks: list[Any] = [None]
    program = Program(FAST, SLOW, hooks=lambda _: hooks[0])
    program.call(hooked_from, "text")
    hooks[0] = print
    written = program.written.calls
    program.call(40, "text")
    assert program.written.calls == written
    assert program.compiled.calls == 40 + hooked_from - written
    hooks[0] = None
    program.call(300, "text")
    assert program.written.calls > 100


def test_long_calls_are_not_tried_on() -> None:
    program = Program(0.06, SLOW)
    program.call(60)
    assert program.written.calls <= 2
    assert program.entries[0].outcome is None


def test_a_pause_between_two_calls_is_not_timed() -> None:
    program = Program(FAST, SLOW)
    program.call(26, "text")  # of whole rounds, and the trial goes on
    time.sleep(0.06)
    program.call(80, "text")
    assert program.entries[0].outcome[0] is True


def test_pauses_of_earlier_trials_do_not_end_a_later_one() -> None:
    program = Program(SLOW, FAST)
    for interval in 24, 100, 200, 400, 800, 1600:
        call_up_to_one_as_written(program, interval + 3)
        time.sleep(0.06)
        program.call(30, "text")  # to the end of the trial
        program.written.calls = 0


def call_up_to_one_as_written(program: Program, most: int) -> None:
    for _ in range(most):
        program.call(1, "text")
        if program.written.calls > 0:
            return
    raise AssertionError(f"{most} calls were compiled")


def test_a_call_within_a_call() -> None:
    program = Program(FAST, SLOW)

    def outer(x: Any) -> Any:
        program.call(1)
        return x

    def compile(frame: Any) -> Any:
        return extension.Entry(outer, None, tried=True) if frame.code is outer.__code__ else None

    compiler = extension.FrameCompiler(compile)
    for _ in range(200):
        assert compiler.call(outer, (1,), {}) == 1
    assert program.entries[0].outcome[0] is True
    assert program.written.calls + program.compiled.calls == 200
