"""Events of capturing and compiling programs, as records: kept by each compiler for
`explain`, and told to Python's `logging`.

    fusewright.capture        a call is captured                         DEBUG, INFO
    fusewright.graphs         a graph was compiled                       INFO
    fusewright.guards         the guards that were made                  DEBUG
    fusewright.graph_breaks   a program was cut in two                   INFO
    fusewright.recompiles     a guard failed; a limit was reached        INFO, WARNING
    fusewright.fallbacks      something runs eagerly                     INFO, WARNING
    fusewright.backend        a backend raised                           ERROR
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import ClassVar, Final

from fusewright.errors import Location
from fusewright.records import record

EVENT_LIMIT: Final = 1000
"""Events that a compiler keeps; older ones are dropped."""


@record(kw_only=True)
class Event:
    """Something that happened to one function; `str()` tells it in a sentence or two."""

    channel: ClassVar[str]
    """The logger, below `fusewright`."""

    level: ClassVar[int] = logging.INFO
    """The level at which it is logged."""

    function: str
    """Qualified name of the function whose frame was to run."""

    place: Location
    """Where that function is defined."""

    @property
    def title(self) -> str:
        """The function and its place, as messages begin."""
        return f"{self.function}  {self.place.file}:{self.place.line}"


@record(kw_only=True)
class CaptureStarted(Event):
    """A frame is about to be traced."""

    channel: ClassVar[str] = "capture"
    level: ClassVar[int] = logging.DEBUG

    def __str__(self) -> str:
        return f"capturing {self.title}"


@record(kw_only=True)
class CaptureFinished(Event):
    """A frame was traced: to a graph, or in vain."""

    channel: ClassVar[str] = "capture"

    seconds: float
    operators: int
    """Operators of the graph; 0 when nothing was captured."""

    def __str__(self) -> str:
        return f"captured {self.title}: {self.operators} operators in {1e3 * self.seconds:.0f} ms"


@record(kw_only=True)
class GraphCompiled(Event):
    """A backend compiled a captured graph."""

    channel: ClassVar[str] = "graphs"

    backend: str
    operators: int
    """Operators of the graph."""

    inputs: int
    """Tensors that it reads."""

    guards: int
    """Tests that run before it may be used."""

    stages: dict[str, float]
    """Seconds by stage, capture and guards included."""

    peak_bytes: int | None
    """The most that planned buffers hold at one time; None where the backend does not tell."""

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {1e3 * spent:.0f} ms" for name, spent in self.stages.items())
        return (
            f"compiled {self.title} with {self.backend}: {self.operators} operators, "
            f"{self.inputs} inputs, {self.guards} guards; {stages}"
        )


@record(kw_only=True)
class BackwardCompiled(Event):
    """The backward half of a graph was compiled, since it is run for the first time."""

    channel: ClassVar[str] = "graphs"

    stages: dict[str, float]
    """Seconds by stage."""

    saved_bytes: int
    """Bytes that the forward half keeps for this, beside its inputs."""

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {1e3 * spent:.0f} ms" for name, spent in self.stages.items())
        return f"compiled the backward of {self.title}: {self.saved_bytes} bytes are kept; {stages}"


@record(kw_only=True)
class GraphBreak(Event):
    """The program does something that cannot be captured: one graph ends before it."""

    channel: ClassVar[str] = "graph_breaks"

    reason: str
    """Its name in the catalogue, docs/graph-breaks.md."""

    what: str
    """The program's operation, and why it cannot be captured."""

    remedy: str
    """A change to the program that avoids the break."""

    location: Location | None
    """The user's line."""

    stack: str
    """The calls from the compiled function to that line, as a traceback prints them."""

    operators_before: int
    """Operators of the graph that ends here."""

    def __str__(self) -> str:
        remedy = f"\n  {self.remedy}" if self.remedy else ""
        return (
            f"graph break [{self.reason}] at {self.location or self.title}\n  {self.what}\n"
            f"  graph before: {self.operators_before} operators{remedy}"
        )


@record
class FailedGuard:
    """A guard that did not hold, in words."""

    expression: str
    """The expression that was tested, as the user would write it."""

    expected: str
    found: str
    location: Location | None
    """The user's line that made it matter."""

    def __str__(self) -> str:
        because = (
            f"   (guard made at {self.location.file}:{self.location.line}, {self.location.text})"
            if self.location
            else ""
        )
        return f"{self.expression}: was {self.expected}, is {self.found}{because}"


@record(kw_only=True)
class Recompiled(Event):
    """None of the compiled versions of a function could be used, so that it is compiled again."""

    channel: ClassVar[str] = "recompiles"

    failures: tuple[FailedGuard, ...]
    """Why not, one for each version, last used first."""

    def __str__(self) -> str:
        lines = "".join(f"\n  {failure}" for failure in self.failures)
        return f"compiling {self.title} again{lines}"


@record(kw_only=True)
class LimitReached(Event):
    """A function was compiled so often that other calls of it now run eagerly."""

    channel: ClassVar[str] = "recompiles"
    level: ClassVar[int] = logging.WARNING

    limit: int
    option: str
    """The name of the option that set the limit."""

    failure: FailedGuard | None
    """The guard that failed most often."""

    def __str__(self) -> str:
        failing = f"\n  the guard that kept failing: {self.failure}" if self.failure else ""
        return f"{self.title} reached the {self.option} of {self.limit}{failing}"


@record(kw_only=True)
class RanEagerly(Event):
    """A call, or a graph, that could not be captured or compiled runs eagerly."""

    channel: ClassVar[str] = "fallbacks"
    level: ClassVar[int] = logging.WARNING

    what: str
    location: Location | None

    def __str__(self) -> str:
        return f"running eagerly from {self.location or self.title}\n  {self.what}"


@record(kw_only=True)
class RanForItsSizes(RanEagerly):
    """A call runs as it was written since a size found in data is not the one that was compiled
    for: no defect.
    """

    level: ClassVar[int] = logging.INFO


@record(kw_only=True)
class RanForItsBackward(RanEagerly):
    """A graph runs as it was captured since its backward raises, as eager's does: no defect."""

    level: ClassVar[int] = logging.INFO


@record(kw_only=True)
class BackendFailed(Event):
    """A backend raised while it compiled a graph."""

    channel: ClassVar[str] = "backend"
    level: ClassVar[int] = logging.ERROR

    backend: str
    stage: str
    location: Location | None
    message: str

    def __str__(self) -> str:
        at = self.location or self.title
        which = "" if self.stage == "backend" else f" in stage {self.stage}"
        return f"backend {self.backend!r} failed{which} at {at}\n  {self.message}"


class EventLog:
    """The events of one compiler, oldest first; any thread may add to it."""

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._events: deque[Event] = deque(maxlen=limit)

    def add(self, event: Event) -> None:
        """Keep an event, and tell its logger."""
        self._events.append(event)
        logger = logging.getLogger(f"fusewright.{event.channel}")
        if logger.isEnabledFor(event.level):
            logger.log(event.level, "%s", event)

    def clear(self) -> None:
        """Forget all events."""
        self._events.clear()

    def __iter__(self) -> Iterator[Event]:
        return iter(tuple(self._events))

    def __len__(self) -> int:
        return len(self._events)
