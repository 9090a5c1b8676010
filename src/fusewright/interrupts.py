"""Ctrl-C while something is compiled.

An interrupt that Python raises between any two instructions may fall into the beginning or the end
of a `with` block, so that modes of torch, locks or the garbage collector stay as they were for the
compile. While one runs, an interrupt is noted, and raised where it does no harm: between stages,
calls that are traced, and nodes. A second one is raised at once.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

Handler = Callable[[int, Any], Any]


class Interrupts:
    """Whether an interrupt waits."""

    def __init__(self) -> None:
        self.is_pending = False
        """Read it where an interrupt does no harm, and call `deliver`."""

        self._handler: Handler | None = None
        """The program's own, while interrupts are held."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block in which the first interrupt waits for `deliver`, or for the end of the block.
        Python interrupts the main thread alone; in others this does nothing, nor inside itself.
        """
        handler = self._own_handler()
        if handler is None:
            yield
            return
        try:
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)
            yield
        finally:
            if signal.getsignal(signal.SIGINT) == self._note:
                signal.signal(signal.SIGINT, handler)
            self._handler = None
            if self.is_pending:
                self.is_pending = False
                handler(signal.SIGINT, sys._getframe())

    def deliver(self) -> None:
        """Raise the interrupt that waits; on the main thread alone."""
        if self._handler is not None and threading.current_thread() is threading.main_thread():
            self.is_pending = False
            self._handler(signal.SIGINT, sys._getframe())

    def _own_handler(self) -> Handler | None:
        if threading.current_thread() is not threading.main_thread() or self._handler is not None:
            return None
        handler = signal.getsignal(signal.SIGINT)
        return handler if callable(handler) else None

    def _note(self, number: int, frame: Any) -> None:
        if self.is_pending:
            self.deliver()
        self.is_pending = True


INTERRUPTS: Final = Interrupts()
