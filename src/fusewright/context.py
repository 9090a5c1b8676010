"""The context of one compile in its stages: options, name supply, stage timings and notes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fusewright.config import Options
from fusewright.interrupts import INTERRUPTS
from fusewright.progress import DOING
from fusewright.records import field, record

FusedBackend = Callable[[Any, list[Any]], Callable[..., Any]]
"""Takes a graph of fused kernels, a `GraphModule`, and inputs of the kind that it takes; gives what
is called with such inputs and returns the graph's outputs.
"""


@record
class Note:
    """Something worth telling the user about a compile: a fall-back, an extern call, a refusal."""

    kind: str
    message: str
    location: str = ""


@record(frozen=False)
class CompileContext:
    """One a compile, passed explicitly to every stage; threads share nothing through it."""

    options: Options = field(default_factory=Options)
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds spent by stage, in the order in which the stages began; what ran inside another one
    is `outer.inner`, and counts in both.
    """

    notes: list[Note] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    fused_backend: FusedBackend | None = None
    """The backend that runs graphs of fused kernels, in place of this compiler's own targets."""

    began: float = field(default_factory=time.perf_counter)
    """When the compile began, by `time.perf_counter`."""

    _open: list[str] = field(default_factory=list)
    """The stages that are running."""

    def again(self) -> CompileContext:
        """A context for another compile on behalf of the same user."""
        return CompileContext(options=self.options, fused_backend=self.fused_backend)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the enclosed block to stage `name`."""
        if INTERRUPTS.is_pending:
            INTERRUPTS.deliver()
        self._open.append(name)
        full_name = ".".join(self._open)
        DOING.step = name
        start = time.perf_counter()
        self.timings.setdefault(full_name, 0.0)
        try:
            yield
        finally:
            self.timings[full_name] += time.perf_counter() - start
            self._open.pop()

    def fresh(self, prefix: str) -> str:
        """A name not given out before in this compile: `prefix0`, `prefix1`, …"""
        number = self.counters.get(prefix, 0)
        self.counters[prefix] = number + 1
        return f"{prefix}{number}"

    def note(self, kind: str, message: str, location: str = "") -> None:
        """Record a note for `explain`."""
        self.notes.append(Note(kind, message, location))


class WhileUsed:
    """A state of the whole process that holds while any thread is in the `with` block."""

    def __init__(self, begin: Callable[[], Callable[[], object]]) -> None:
        """`begin` is called when the first thread enters; what it returns, when the last leaves."""
        self._begin = begin
        self._end: Callable[[], object] = begin
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._end = self._begin()
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._end()


def _pause_collector() -> Callable[[], object]:
    before = gc.isenabled()
    gc.disable()
    return gc.enable if before else gc.disable


COLLECTOR_PAUSE: Final = WhileUsed(_pause_collector)
"""Keeps the garbage collector from scanning the whole process while any thread compiles.

Compiling makes objects by the ten thousands, few of them garbage; a full collection beside a
large library takes longer than capturing a model.
"""
