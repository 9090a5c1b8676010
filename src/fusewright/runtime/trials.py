"""Trials of the alternatives that tuning chooses among: their times, and which is taken.

Some alternatives are hopeless, and some fail: both are left out early. The first one is what is
taken without a trial; another has to be faster by more than `GAIN`, else noise would decide.
Timing itself, and decisions on disk, are those of choices at the first call (`choices`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf, isfinite
from typing import Final

import torch

from fusewright.records import record
from fusewright.runtime import choices
from fusewright.runtime.choices import Decision

Alternative = Callable[[], object]
"""Does the thing once."""

COLD_BYTES: Final[dict[str, int]] = {"cuda": 1 << 27}
"""By type of device, bytes of inputs of a program that calls go through, so that each finds its own
in memory, as that of a model does, and not in a cache that the call before left them in.
"""

Timer = Callable[[Sequence[Alternative], torch.device], Sequence[float]]
"""The seconds that each alternative takes on a device; infinity for one that fails."""

GAIN: Final = 0.05
"""Part of the first alternative's time that another has to save."""

HOPELESS: Final = 3.0
"""An alternative that takes so many times as long as the best at first gets no further turns."""

FIRST_TURNS: Final = 3
"""How often an alternative that seems hopeless is called again."""

LONG: Final = 5e-3
"""Seconds of a call from which on one call is exact enough for a turn."""

REPEATS: Final = 3
"""How often all take turns."""

MOST_RECORDED: Final = 128
"""Calls in one CUDA graph, at most: so many that weights of 1 MiB are more than a cache holds."""

RECORDED_SECONDS: Final = 4e-4
"""The time of a graph's calls, about."""

PAIRS: Final = 8
"""How often the first and the best then take turns alone."""

MOST_PAIRS: Final = 7
"""In how many of these pairs the best has to be faster: by chance it is in one of 28 trials."""


TRYING: Final = threading.Lock()
"""Held during a trial: one at a time is timed in this process."""


@record(kw_only=True)
class Tuned:
    """A trial, for reports."""

    kind: str = "kernel"
    """The kind of what was chosen: a `kernel`, whether a `product` is one, or the alternative of a
    `choice`.
    """

    kernel: str
    """The name of the kernel that was taken, or of the choice, or the sizes of the product."""

    candidates: tuple[str, ...]
    """Its candidates, in words."""

    decision: Decision
    was_kept: bool
    """Whether an earlier compile tried it, mostly in an earlier process."""

    argument_bytes: int
    """The size of the arguments that it was tried on; 0 where it was not tried in this process."""

    untried_because: str
    """Why nobody did; empty: somebody did."""


def why_not_now() -> str:
    """Why nothing can be timed in this thread; empty: it can. To wait for the GPU breaks what the
    program records around its first call.
    """
    return "the program records a CUDA graph" if choices.is_recording() else ""


def in_turn(calls: Sequence[Alternative]) -> Alternative:
    """One alternative that makes the next of some calls each time."""
    return calls[0] if len(calls) == 1 else partial(call_next, deque(calls))


def call_next(calls: deque[Alternative]) -> object:
    """Make the first call, which comes last from then on."""
    call = calls[0]
    calls.rotate(-1)
    return call()


def cold_sets(device: torch.device, input_bytes: int, spare_bytes: int) -> int:
    """How many sets of a trial's inputs calls go through, where each further one may take a part of
    `spare_bytes`.
    """
    wanted = COLD_BYTES.get(device.type, 0)
    if not input_bytes or wanted <= input_bytes:
        return 1
    further = min(wanted, max(0, spare_bytes)) // input_bytes
    return min(MOST_RECORDED, 1 + further)


def are_cold(device: torch.device, input_bytes: int, sets: int) -> bool:
    """Whether calls that go through so many sets find their inputs in memory, as far as they ever
    do: others decide by what is fastest in a cache, which is for programs as small alone.
    """
    return sets == MOST_RECORDED or 2 * sets * input_bytes >= COLD_BYTES.get(device.type, 0)


def decided(seconds: Sequence[float]) -> Decision:
    """The decision that follows from times: the first alternative, unless another gains."""
    best = min(range(len(seconds)), key=lambda number: seconds[number])
    gains = seconds[best] < (1 - GAIN) * seconds[0]
    known = tuple(number if isfinite(number) else None for number in seconds)
    return Decision(winner=best if gains else 0, seconds=known)


def trial_key(device: torch.device, *texts: str) -> str:
    """A hash of all that decides a trial, in hexadecimal: `texts`, the device, and versions."""
    return choices.kept_key("\0".join(texts), str(device), 0)


def time_alternatives(alternatives: Sequence[Alternative], device: torch.device) -> list[float]:
    """The shortest time of each alternative; infinity for one that raises an exception. On a GPU it
    is the GPU's own: what the CPU takes to launch is left out, wherever graphs can be recorded.
    """
    best = [inf] * len(alternatives)
    for number, alternative in enumerate(alternatives):
        try:
            alternative()  # Loads machine code, and touches memory for the first time.
            best[number] = _seconds_of_one(alternative, device)
        except Exception:
            continue
    working = [number for number, seconds in enumerate(best) if seconds < inf]
    for _ in range(FIRST_TURNS):  # The first call of a row may have met something else at work.
        for number in working:
            if best[number] > HOPELESS * min(best):
                best[number] = min(best[number], _seconds_of_one(alternatives[number], device))
    running = [number for number in working if best[number] <= HOPELESS * min(best)]
    if not running:
        return best
    is_long = min(best) > LONG
    compared = {*running, *({0} & set(working))}
    runs = {number: alternatives[number] for number in compared}
    count = 1
    if device.type == "cuda" and not is_long:
        counts = [choices.together(min(best), MOST_RECORDED, RECORDED_SECONDS)] * len(runs)
        batches = choices.recorded(list(runs.values()), counts, device)
        runs = {number: batch.run for number, batch in zip(runs, batches, strict=True)}
        count = batches[0].count
    if not is_long:
        best = [inf if number in runs else seconds for number, seconds in enumerate(best)]
        for _ in range(REPEATS):
            times = choices.time_turns([runs[number] for number in running], device)
            for number, seconds in zip(running, times, strict=True):
                best[number] = min(best[number], seconds / count)
    winner = min(running, key=lambda number: best[number])
    if winner and 0 in runs:
        first, second = _in_pairs((runs[0], runs[winner]), device, is_long=is_long)
        best[0], best[winner] = first / count, second / count
    return best


def _in_pairs(
    pair: tuple[Alternative, Alternative], device: torch.device, *, is_long: bool
) -> tuple[float, float]:
    """The shortest times of two alternatives that take turns, each first in half of the pairs. The
    second counts as no faster unless it is so in most pairs: what else a machine does may meet one
    of them for a while.
    """
    best = [inf, inf]
    wins = 0
    for number in range(PAIRS):
        times = [inf, inf]
        for which in (0, 1) if number % 2 else (1, 0):
            if is_long:
                times[which] = _seconds_of_one(pair[which], device)
            else:
                (times[which],) = choices.time_turns([pair[which]], device)
        best = [min(old, new) for old, new in zip(best, times, strict=True)]
        wins += times[1] < times[0]
    if wins < MOST_PAIRS:
        best[1] = max(best)
    return best[0], best[1]


def _seconds_of_one(alternative: Alternative, device: torch.device) -> float:
    """The time of one call, its launch included."""
    began = time.perf_counter()
    alternative()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


TIMER: Timer = time_alternatives
"""What times alternatives, wherever no other timer is given."""
