"""The progress of a long compile, in one line on the terminal that goes away when it is done; other
processes of a distributed job are told, too (`ranks`).

    ⠹ compiling BertForMaskedLM  model.py:12   schedule   1.4 s

Nothing is written, and nothing is loaded, where a compile takes less than a second, or where
stderr is not a terminal. `FUSEWRIGHT_PROGRESS=0` turns it off.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from fusewright.errors import Location
from fusewright.ranks import telling_others

DELAY: Final = 1.0
"""Seconds that a compile may take before something is written."""

PER_SECOND: Final = 8
"""How often the line is written again."""

SWITCH: Final = "FUSEWRIGHT_PROGRESS"


class Doing:
    """The compile that the line tells of."""

    def __init__(self) -> None:
        self.what = ""
        self.step = ""
        self.done = 0
        self.all = 0
        """Kernels that are compiled one by one, as for a GPU; 0 where they are compiled at once."""

        self.began = 0.0
        self._lock = threading.Lock()
        self._users = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def enter(self, what: str) -> None:
        """A compile begins; inside another one, that one stays in the line."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self.what, self.step, self.done, self.all = what, "capture", 0, 0
            self.began = time.monotonic()
            self._end = threading.Event()
            self._thread = threading.Thread(
                target=self._show, args=(self._end,), name="fusewright-progress", daemon=True
            )
            self._thread.start()

    def leave(self) -> None:
        """The compile ended, in whatever way; the line is gone when this returns."""
        with self._lock:
            self._users = max(0, self._users - 1)
            if self._users:
                return
            thread, self._thread = self._thread, None
            self._end.set()
        if thread is not None:
            thread.join()

    def __rich__(self) -> Any:
        """The line, for rich."""
        text = import_module("rich.text").Text
        spent = time.monotonic() - self.began
        kernels = f", {self.done} of {self.all} kernels" if self.all else ""
        line = f"compiling {self.what}   {self.step}{kernels}   {spent:.1f} s"
        frame = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[int(spent * PER_SECOND) % 10]
        return text(f"{frame} {line}", no_wrap=True, overflow="ellipsis", style="dim")

    def _show(self, end: threading.Event) -> None:
        """Wait, and write the line until the end."""
        if end.wait(DELAY):
            return
        try:
            console = import_module("rich.console").Console(stderr=True)
            live = import_module("rich.live").Live
        except ModuleNotFoundError:
            return
        with live(self, console=console, transient=True, refresh_per_second=PER_SECOND):
            end.wait()


DOING: Final = Doing()


@contextmanager
def compiling(what: str, place: Callable[[], Location | None]) -> Iterator[None]:
    """A block in which a compile runs, of which the terminal is told where it takes long; `place`
    says then where that begins.
    """
    with telling_others(lambda: ", ".join([what, *_file_and_line(place())])):
        if not _is_wanted():
            yield
            return
        try:  # An interrupt may come at any place.
            DOING.enter("  ".join([what, *map(os.path.basename, _file_and_line(place()))]))
            yield
        finally:
            DOING.leave()


def _file_and_line(place: Location | None) -> list[str]:
    return [f"{place.file}:{place.line}"] if place else []


def _is_wanted() -> bool:
    """Whether stderr is a terminal on which a line can be written over."""
    if os.environ.get(SWITCH) == "0" or os.environ.get("TERM") == "dumb":
        return False
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # None, or closed
        return False


def _after_fork() -> None:
    """In a child, no thread is there to write."""
    DOING.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)
