"""Times of calls that take turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

PROCESSOR_TIME = "FUSEWRIGHT_BENCHMARK_PROCESSOR_TIME"
"""The environment variable that has processor time measured: where other processes hold the cores.
"""

SECONDS = 12.0
"""Time for the interleaved calls of one model, all columns together."""

LEAST_ROUNDS = 15
MOST_ROUNDS = 300
SAMPLE_SECONDS = 0.002
"""A sample repeats calls that are shorter than this, so that reading the clock does not matter."""


TRIM_THRESHOLD, MOST_MAPPED = -1, -4
"""Parameters of glibc's `mallopt`: how much free memory at the end of its heap is given back, and
how many pieces may be mapped from the system one by one.
"""


def keep_freed_memory() -> None:
    """Let what is freed stay with this process, where glibc allocates. Else it depends on what lies
    behind a tensor whether the next call gets pages that are there: 2,048 page faults for 8 MiB, 2
    ms of a step that takes 2 beside them, which fell on any column.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(MOST_MAPPED, 0)
        set_option(TRIM_THRESHOLD, 2**31 - 1)


def clock() -> Callable[[], float]:
    """The function that tells the time, that of the processor where it is asked for."""
    return time.process_time if PROCESSOR_TIME in os.environ else time.perf_counter


def take_turns(
    calls: dict[str, Callable[[], Any]], seconds: float = SECONDS
) -> dict[str, list[float]]:
    """Seconds a call, sampled in turns that begin with another column each time."""
    now = clock()
    repeats: dict[str, int] = {}
    for column, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[column] = max(1, round(SAMPLE_SECONDS / (time.perf_counter() - start)))

    samples: dict[str, list[float]] = {column: [] for column in calls}
    order = list(calls)
    end = time.perf_counter() + seconds
    for number in range(MOST_ROUNDS):
        if number >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        order = [*order[1:], order[0]]
        for column in order:
            call = calls[column]
            start = now()
            for _ in range(repeats[column]):
                call()
            samples[column].append((now() - start) / repeats[column])
    return samples


def typical(samples: Sequence[float]) -> float:
    """The median of times; of processor times the least, which other processes disturb least."""
    return min(samples) if PROCESSOR_TIME in os.environ else statistics.median(samples)
