"""Messages of the processes of a distributed job about compiling: one that waits in a reduction for
another that compiles says so, before the time-out of the process group ends it.

A process that compiles writes what to the store of the default process group. The others look there
every few seconds, and warn of what takes longer than `NOTICE_SECONDS` while they compile nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from fusewright.logs import warn

NOTICE_SECONDS: float = 10.0
"""How long another process may compile before this one warns of it."""

_KEY: Final = "fusewright/compiling"
"""In the store: who compiles what, of several one. Empty: nobody, or it will be told soon."""


@contextmanager
def telling_others(what: Callable[[], str]) -> Iterator[None]:
    """Context in which the other processes of the job, if it has any, know what this one compiles:
    the text that `what` gives.
    """
    watch = _JOB.watching()
    if watch is None:
        yield
        return
    watch.begin(what())
    try:
        yield
    finally:
        watch.end()


class Watch:
    """Tells the other processes of a job what this one compiles, and the user what they do."""

    def __init__(self, store: Any, rank: int) -> None:
        self.store = store
        self._rank = rank
        self._own: list[str] = []
        """The names of the functions being compiled in this process: several threads may compile at
        once, and one compilation inside another.
        """

        self._lock = threading.Lock()
        self._stopped = threading.Event()
        with suppress(RuntimeError):
            store.compare_set(_KEY, "", "")
        self._thread = threading.Thread(target=self._look, name="fusewright ranks", daemon=True)
        self._thread.start()

    def begin(self, what: str) -> None:
        """Tell the others what is compiled."""
        text = f"rank {self._rank} compiles {what}"
        with (
            self._lock,
            suppress(RuntimeError),
        ):  # Of a store that is gone the next reduction tells.
            self._own.append(text)
            self.store.set(_KEY, text)

    def end(self) -> None:
        """Tell them that it is done."""
        with self._lock, suppress(RuntimeError):
            text = self._own.pop()
            self.store.compare_set(_KEY, text, self._own[-1] if self._own else "")

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join(timeout=1)

    def _look(self) -> None:
        text, since, is_told = "", 0.0, False
        while not self._stopped.wait(NOTICE_SECONDS / 4):
            try:
                with self._lock:
                    latest = self.store.get(_KEY).decode()
                    own = self._own[-1] if self._own else ""
                    if own and not latest:  # Another one began later, and is done.
                        latest = self.store.compare_set(_KEY, "", own).decode()
            except RuntimeError:
                return
            now = time.monotonic()
            if latest != text:
                text, since, is_told = latest, now, False
            waits = text and not is_told and not own
            if waits and now - since >= NOTICE_SECONDS:
                is_told = True
                warn(
                    f"{text}, for {now - since:.0f} s so far, while this process, rank "
                    f"{self._rank}, compiles nothing: it waits if they share a reduction, for as "
                    "long as the time-out of the process group allows (`timeout` of "
                    "torch.distributed.init_process_group)"
                )


class _Job:
    """The job that this process belongs to, as far as it is known."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.watch: Watch | None = None
        self.is_fork = False
        """Whether this process was forked: it shares its parent's connection to the store."""

    def watching(self) -> Watch | None:
        """The watch of the default process group; None where nobody else is in it."""
        job = None if self.is_fork else _default_job()
        if job is None:
            return None
        store, rank = job
        with self.lock:
            if self.watch is None or self.watch.store is not store:
                self.stop()
                self.watch = Watch(store, rank)
            return self.watch

    def stop(self) -> None:
        """Watch no more."""
        if self.watch is not None:
            self.watch.stop()

    def forget(self) -> None:
        """In a forked process there is no thread that watches."""
        self.is_fork, self.watch = True, None
        self.lock = threading.Lock()


_JOB: Final = _Job()
atexit.register(_JOB.stop)
os.register_at_fork(after_in_child=_JOB.forget)


def _default_job() -> Any:
    """The job that this process belongs to; None for none. What asks torch is there where anything
    is compiled: it is not imported for stages that know nothing of torch.
    """
    asking = sys.modules.get("fusewright.torch_compat.distributed")
    return None if asking is None else asking.default_job()
