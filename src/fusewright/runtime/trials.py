"""Times of alternatives that do one thing, and the outcomes, kept on disk for later processes.

Alternatives take turns, so that what disturbs a machine for a while disturbs all; the time of each
is that of its best turn. The first one is what is taken without a trial: another has to be faster
by more than `GAIN`, else noise would decide.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Sequence
from math import inf, isfinite
from typing import Any, Final

import torch

from fusewright.records import record
from fusewright.runtime.kept_files import KeptFiles
from fusewright.runtime.llvm_engine import cpu_target, llvm_binding

Alternative = Callable[[], object]
"""Does the thing once."""

Timer = Callable[[Sequence[Alternative], torch.device], Sequence[float]]
"""The seconds that each alternative takes on a device; infinity for one that fails."""

GAIN: Final = 0.05
"""Part of the first alternative's time that another has to save."""

HOPELESS: Final = 3.0
"""An alternative that takes so many times as long as the best, in its first turn, gets no other."""

FIRST_TURNS: Final = 3
"""Calls of each alternative, of which the best one says whether it is hopeless."""

ROUNDS: Final = 12
"""Turns of each alternative, at most."""

SHORTEST_TURN: Final = 1e-4
"""Seconds that a turn takes at least: an alternative is called as often as that needs."""

LONGEST_TRIAL: Final = 0.25
"""Seconds after which no further round begins: of all, then of the first and the best alone."""

FORMAT: Final = 1
"""Number of the format of files: others are not read."""


@record(kw_only=True)
class Outcome:
    """The times of several alternatives, and which is taken."""

    seconds: tuple[float, ...]
    """By alternative; infinity for one that failed."""

    winner: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Outcome:
        """The outcome of these times: the first is taken unless another gains."""
        best = min(range(len(seconds)), key=lambda number: seconds[number])
        gains = seconds[best] < (1 - GAIN) * seconds[0]
        return cls(seconds=tuple(seconds), winner=best if gains else 0)

    @property
    def gain(self) -> float:
        """How many times as fast as the first alternative the winner is."""
        first, best = self.seconds[0], self.seconds[self.winner]
        return first / best if isfinite(first) and best else 1.0

    def to_bytes(self) -> bytes:
        seconds = [number if isfinite(number) else None for number in self.seconds]
        row = {"format": FORMAT, "seconds": seconds, "winner": self.winner}
        return json.dumps(row).encode()

    @classmethod
    def from_bytes(cls, content: bytes, alternatives: int) -> Outcome | None:
        """None: this is no outcome of so many alternatives in today's format."""
        try:
            row: dict[str, Any] = json.loads(content)
            seconds = tuple(inf if number is None else float(number) for number in row["seconds"])
            winner = row["winner"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        if row.get("format") != FORMAT or len(seconds) != alternatives or type(winner) is not int:
            return None
        return cls(seconds=seconds, winner=winner) if 0 <= winner < alternatives else None


@record(kw_only=True)
class Tuned:
    """The trial of a kernel, for reports."""

    kernel: str
    """The name of the kernel that was taken."""

    candidates: tuple[str, ...]
    """Its candidates, in words."""

    outcome: Outcome
    argument_bytes: int
    """The size of the arguments that it was tried on; 0 where it was not tried in this process."""

    was_kept: bool
    """Whether an earlier process tried it."""

    untried_because: str
    """Why nobody did; empty: somebody did."""


OUTCOMES: Final = KeptFiles("outcomes", ".json")
"""The outcomes of trials."""


def outcome_key(*texts: str) -> str:
    """A hash of all that decides an outcome, in hexadecimal."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=20).hexdigest()


def device_identity(device: torch.device) -> str:
    """The kind of a device, and what else of the machine decides times on it."""
    versions = f"torch {torch.__version__}"
    if device.type == "cuda":
        triton = importlib.metadata.version("triton")
        return f"{torch.cuda.get_device_name(device)} {versions} triton {triton}"
    cpu = cpu_target()
    llvm = ".".join(map(str, llvm_binding().llvm_version_info))
    return f"{cpu.name} {cpu.features} {torch.get_num_threads()} threads {versions} llvm {llvm}"


def time_alternatives(alternatives: Sequence[Alternative], device: torch.device) -> list[float]:
    """The seconds of each alternative's best turn; infinity for one that raises an exception."""
    clock = _gpu_seconds if device.type == "cuda" else _cpu_seconds
    counts = [0] * len(alternatives)
    best = [inf] * len(alternatives)
    for number, alternative in enumerate(alternatives):
        try:
            alternative()  # Loads machine code, and touches memory for the first time.
            once = min(clock(alternative, 1, device) for _ in range(FIRST_TURNS))
        except Exception:
            continue
        counts[number] = max(1, min(1000, round(SHORTEST_TURN / max(once, 1e-7))))
        best[number] = once
    least = min(best, default=inf)
    running = [number for number, seconds in enumerate(best) if seconds <= HOPELESS * least]

    def take_turns(among: Sequence[int]) -> None:
        began = time.perf_counter()
        for _ in range(ROUNDS if len(among) > 1 else 0):
            for number in among:
                seconds = clock(alternatives[number], counts[number], device)
                best[number] = min(best[number], seconds)
            if time.perf_counter() - began > LONGEST_TRIAL:
                return

    take_turns(running)
    take_turns(sorted({0, min(running, key=lambda number: best[number])} & set(running)))
    return best


def _cpu_seconds(alternative: Alternative, count: int, device: torch.device) -> float:
    began = time.perf_counter()
    for _ in range(count):
        alternative()
    return (time.perf_counter() - began) / count


def _gpu_seconds(alternative: Alternative, count: int, device: torch.device) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.current_stream(device)
    begin.record(stream)
    for _ in range(count):
        alternative()
    end.record(stream)
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1e3 / count


TIMER: Timer = time_alternatives
"""What times alternatives, wherever no other timer is given."""
