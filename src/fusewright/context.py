"""What one compile carries through its stages: options, name supply, stage timings and notes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fusewright.config import Options


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth telling the user about a compile: a fall-back, an extern call, a refusal."""

    kind: str
    message: str
    location: str = ""


@dataclass(slots=True)
class CompileContext:
    """One a compile, passed explicitly to every stage; threads share nothing through it."""

    options: Options = field(default_factory=Options)
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds spent by stage, in the order in which the stages ran."""

    notes: list[Note] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the enclosed block to stage `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - start

    def fresh(self, prefix: str) -> str:
        """A name not given out before in this compile: `prefix0`, `prefix1`, …"""
        number = self.counters.get(prefix, 0)
        self.counters[prefix] = number + 1
        return f"{prefix}{number}"

    def note(self, kind: str, message: str, location: str = "") -> None:
        """Record a note for `explain`."""
        self.notes.append(Note(kind, message, location))
