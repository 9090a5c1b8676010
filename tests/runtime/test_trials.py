"""Trials on a GPU time graphs of several calls, and without a GPU as with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright.runtime import choices, cuda_graphs, trials
from fusewright.runtime.trials import Alternative

CUDA = torch.device("cuda", 0)


class Counted:
    """An alternative that takes so many seconds, by a clock that only calls move on."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds

    def __call__(self) -> None:
        self.clock.launches += 1
        self.clock.now += self.seconds + self.clock.launch_seconds


class Clock:
    """The time on a machine where each launch costs the CPU some time, and replays cost none."""

    launch_seconds = 1e-4

    def __init__(self) -> None:
        self.now = 0.0
        self.launches = 0
        self.replays = 0


class Recorder:
    """Records calls as a device does."""

    def __init__(self, clock: Clock, fails: bool) -> None:
        self.clock = clock
        self.fails = fails

    def warm_up(self, call: Callable[[list[Any]], Any], inputs: list[Any]) -> None:
        call(inputs)

    def record(self, call: Callable[[list[Any]], Any], inputs: list[Any]) -> Any:
        if self.fails:
            raise RuntimeError("this cannot be recorded")
        before, launches = self.clock.now, self.clock.launches
        call(inputs)
        count = self.clock.launches - launches
        seconds = self.clock.now - before - count * self.clock.launch_seconds
        self.clock.now = before
        return Graph(self.clock, seconds), ()


class Graph:
    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds

    def replay(self) -> None:
        self.clock.replays += 1
        self.clock.now += self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    def time_turns(runs: Sequence[Alternative], device: torch.device) -> list[float]:
        times = []
        for run in runs:
            before = clock.now
            run()
            times.append(clock.now - before)
        return times

    monkeypatch.setattr(choices, "time_turns", time_turns)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(trials.time, "perf_counter", lambda: clock.now)
    return clock


@pytest.mark.parametrize("fails", [False, True])
def test_launches_do_not_count(clock: Clock, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "CudaDevice", lambda index: Recorder(clock, fails))
    alternatives = [Counted(clock, 9e-6), Counted(clock, 6e-6), Counted(clock, 7e-6)]
    found = trials.time_alternatives(alternatives, CUDA)
    launch = clock.launch_seconds if fails else 0.0
    assert found == pytest.approx([9e-6 + launch, 6e-6 + launch, 7e-6 + launch])
    assert bool(clock.replays) is not fails


def test_long_calls_are_not_recorded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "CudaDevice", lambda index: pytest.fail("recorded"))
    found = trials.time_alternatives([Counted(clock, 0.02), Counted(clock, 0.01)], CUDA)
    assert found == pytest.approx([0.0201, 0.0101])


def test_the_first_is_timed_though_it_seems_hopeless(clock: Clock) -> None:
    found = trials.time_alternatives(
        [Counted(clock, 5e-3), Counted(clock, 1e-3)], torch.device("cpu")
    )
    assert found == pytest.approx([5.1e-3, 1.1e-3])


def test_a_winner_has_to_win_most_pairs(clock: Clock) -> None:
    class Disturbed(Counted):
        def __call__(self) -> None:
            self.seconds = 3e-3 if self.clock.launches % 3 else 1e-3
            super().__call__()

    found = trials.time_alternatives(
        [Counted(clock, 2e-3), Disturbed(clock, 1e-3)], torch.device("cpu")
    )
    assert trials.decided(found).winner == 0


@pytest.mark.parametrize("fails", [False, True])
def test_choices_at_the_first_call_are_recorded_alike(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            self.at = clock.now

        def synchronize(self) -> None:
            """All is done at once."""

        def elapsed_time(self, end: Event) -> float:
            return (end.at - self.at) * 1e3

    monkeypatch.setattr(cuda_graphs, "CudaDevice", lambda index: Recorder(clock, fails))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    found = choices.time_runs([Counted(clock, 9e-6), Counted(clock, 6e-6)], CUDA)
    launch = clock.launch_seconds if fails else 0.0
    assert found == pytest.approx([9e-6 + launch, 6e-6 + launch])
    assert bool(clock.replays) is not fails
