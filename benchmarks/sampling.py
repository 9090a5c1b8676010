"""Times of calls that take turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SECONDS = 12.0
"""Time for the interleaved calls of one model, all columns together."""

LEAST_ROUNDS = 15
MOST_ROUNDS = 300
SAMPLE_SECONDS = 0.002
"""A sample repeats calls that are shorter than this, so that reading the clock does not matter."""


def take_turns(
    calls: dict[str, Callable[[], Any]], seconds: float = SECONDS
) -> dict[str, list[float]]:
    """Seconds a call, sampled in turns that begin with another column each time."""
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
            start = time.perf_counter()
            for _ in range(repeats[column]):
                call()
            samples[column].append((time.perf_counter() - start) / repeats[column])
    return samples
