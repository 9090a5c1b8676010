"""Tells what happens while a function is compiled: as events, to the log, and to the user."""

from __future__ import annotations

import functools
import inspect
import traceback
import types
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx

from fusewright.capture import Capture, reasons
from fusewright.capture.breaks import Failed
from fusewright.capture.bytecode.resume import ResumeTable
from fusewright.capture.trace import CALL_MODULE
from fusewright.compilation import Compilation, Settings
from fusewright.errors import (
    BackendCompilerFailed,
    FusewrightError,
    GraphFailed,
    Location,
    NothingRaised,
    RecompileLimitExceeded,
    UnmetSize,
    Unsupported,
    WrongResult,
)
from fusewright.events import (
    BackendFailed,
    BackwardCompiled,
    CaptureFinished,
    CaptureStarted,
    EventLog,
    FailedGuard,
    GraphBreak,
    GraphCompiled,
    LimitReached,
    RanEagerly,
    RanForItsBackward,
    RanForItsSizes,
    Recompiled,
)
from fusewright.logs import log_text, warn
from fusewright.native import Frame
from fusewright.records import record

if TYPE_CHECKING:  # Importing it takes the whole IR along.
    from fusewright.runtime.compiled import Training


@record
class Subject:
    """The function that a frame belongs to, as users know it."""

    name: str
    place: Location

    @classmethod
    def of(cls, frame: Frame, resumes: ResumeTable) -> Subject:
        """The captured function; for a call of a module, or of another callable, that one."""
        code = frame.code
        if code is not CALL_MODULE.__code__:
            return cls(code.co_qualname, Location(code.co_filename, _first_line(code, resumes)))
        target = frame.locals["self"]
        name = getattr(target, "__qualname__", None) or type(target).__qualname__
        method = getattr(type(target), "forward", None) or type(target).__call__
        code = getattr(inspect.unwrap(method), "__code__", code)
        return cls(name, Location(code.co_filename, code.co_firstlineno))

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that every event begins with."""
        return {"function": self.name, "place": self.place}

    @property
    def title(self) -> str:
        return f"{self.name}  {self.place.file}:{self.place.line}"


def _first_line(code: types.CodeType, resumes: ResumeTable) -> int:
    """Where a function begins, or goes on after a graph break."""
    first = code.co_firstlineno
    original, _ = resumes.locate(code, 0)
    if original is code:
        return first
    lines = (line for _, _, line in code.co_lines() if line is not None)
    return next((line for line in lines if line != first), first)


class Reporter:
    """Tells of all that one compiled function or module runs."""

    def __init__(self, settings: Settings, events: EventLog) -> None:
        self._settings = settings
        self._events = events
        self._warned: set[str] = set()

    def reset(self) -> None:
        """Forget what was told."""
        self._events.clear()
        self._warned.clear()

    def recompilation(self, about: Subject, frame: Frame) -> None:
        """Say why none of the entries could be used. RecompileLimitExceeded: there are too many,
        and running eagerly is not allowed.
        """
        if not frame.entries:
            return
        failures = _failures(frame)
        options = self._settings.options
        limit, option = min(
            (options.recompile_limit, "recompile_limit"),
            (options.accumulated_recompile_limit, "accumulated_recompile_limit"),
        )
        if self._settings.refuses and len(frame.entries) >= limit:
            failing = str(_most_frequent(failures) or "unknown")
            raise RecompileLimitExceeded(about.name, about.place, option, limit, failing)
        self._events.add(Recompiled(**about.fields, failures=failures))

    def capture_started(self, about: Subject) -> None:
        """Told before a frame is traced."""
        self._events.add(CaptureStarted(**about.fields))

    def capture_finished(
        self, about: Subject, graph: fx.Graph, seconds: float, operators: int
    ) -> None:
        """Told when a frame was traced to a graph, in so many seconds."""
        self._events.add(CaptureFinished(**about.fields, seconds=seconds, operators=operators))
        log_text("graphs", lambda: f"{about.title}\n{graph}")

    def compiled(self, about: Subject, capture: Capture, compilation: Compilation) -> None:
        """Told when there is new code, up to the end of the function or to a graph break."""
        operators = sum(compilation.operators.values())
        failure = getattr(compilation.compiled, "failure", None)
        if failure is not None:  # The backend has warned of it, where eager does not raise as well.
            is_eagers = getattr(compilation.compiled, "raises_in_backward", False)
            event = RanForItsBackward if is_eagers else RanEagerly
            what = f"stage {failure.stage} failed: {failure.detail}"
            self._events.add(event(**about.fields, what=what, location=failure.location))
        elif compilation.compiled is not None:
            self._events.add(
                GraphCompiled(
                    **about.fields,
                    backend=self._settings.backend_name,
                    operators=operators,
                    inputs=compilation.input_count,
                    guards=len(compilation.guards.checks),
                    stages=compilation.seconds,
                    peak_bytes=compilation.peak_bytes,
                )
            )
        if compilation.training is not None:
            compilation.training.tell = functools.partial(_tell_backward, self._events, about)
        log_text(
            "functions", lambda: f"{about.title}\n{compilation.python}\n{compilation.bytecode}"
        )
        log_text("guards", lambda: f"{about.title}\n{compilation.guards.table()}")
        if capture.graph_break is not None:
            error = capture.graph_break.error
            self._events.add(
                GraphBreak(
                    **about.fields,
                    reason=error.reason,
                    what=error.what,
                    remedy=error.remedy,
                    location=error.location,
                    stack="".join(map(str, error.calls)),
                    operators_before=operators,
                )
            )

    def internal_error(self, about: Subject, error: Exception) -> None:
        """Tell of an error of the compiler's own, after which a function runs as it is.
        Unsupported: that is not allowed.
        """
        reason = reasons.INTERNAL_ERROR
        text = reason.text(error=f"{type(error).__name__}: {error}")
        if self._settings.refuses:
            raise Unsupported(text, about.place, reason.remedy, reason.name) from error
        self.runs_eagerly(about, text, about.place)

    def backend_failure(self, about: Subject, error: Exception) -> FusewrightError:
        """The error to raise for what a backend raised; it is told."""
        location = getattr(error, "location", None)
        message = f"{type(error).__name__}: {error}"
        self._events.add(
            BackendFailed(
                **about.fields,
                backend=self._settings.backend_name,
                stage=getattr(error, "stage", "backend"),
                location=location,
                message=message,
            )
        )
        if isinstance(error, FusewrightError):
            return error
        at = location or about.place
        return BackendCompilerFailed(self._settings.backend_name, "backend", at, message)

    def raises(self, about: Subject, raised: str, operator: str) -> Callable[[], None]:
        """Told when a program raises from its own lines; what to call if it does not, which shows
        that capture was wrong, or the fake implementation of `operator`.
        """
        what = f"the program raises {raised}, from its own lines"
        self._events.add(RanEagerly(**about.fields, what=what, location=None))
        error = NothingRaised(about.name, about.place, raised, operator)
        return functools.partial(self._defect, about, error)

    def telling_failure(self, about: Subject, may_return: bool) -> Failed:
        """The function that generated code calls when its graph raised. It must not keep the
        compiler alive: the collector does not see through code.
        """
        tell = weakref.WeakMethod(self._graph_failed)

        def failed(error: Exception) -> Callable[[], None] | None:
            graph_failed = tell()
            assert graph_failed is not None, "a compiler lives while what it made runs"
            return graph_failed(about, may_return, error)

        return failed

    def _graph_failed(
        self, about: Subject, may_return: bool, error: Exception
    ) -> Callable[[], None] | None:
        """Tell that a graph raised while it ran, and that the call begins again as it was written.
        What to call if that returns though it may not.
        """
        raised = f"{type(error).__name__}: {error}"
        is_unmet = isinstance(error, UnmetSize)
        cause = str(error) if is_unmet else f"the graph raised {raised}"
        event = RanForItsSizes if is_unmet else RanEagerly
        what = f"{cause}; the call runs as it was written"
        self._events.add(event(**about.fields, what=what, location=None))
        if may_return:
            return None
        says_whose_fault = isinstance(error, WrongResult)
        where = "" if says_whose_fault else "".join(traceback.format_tb(error.__traceback__)[-2:])
        defect = GraphFailed(about.name, about.place, raised, where)
        return functools.partial(self._defect, about, defect)

    def _defect(self, about: Subject, error: FusewrightError) -> None:
        """Tell, once, of a call that returned and should not have; raise where told to."""
        if self._settings.refuses:
            raise error
        if str(error) not in self._warned:
            self._events.add(RanEagerly(**about.fields, what=str(error), location=None))
            self._warn(str(error))

    def limit_reached(self, about: Subject, frame: Frame, accumulated: bool) -> None:
        """Told by the frame hook, once a code: it gets no more entries."""
        option = "accumulated_recompile_limit" if accumulated else "recompile_limit"
        limit = getattr(self._settings.options, option)
        event = LimitReached(
            **about.fields,
            limit=limit,
            option=option,
            failure=_most_frequent(_failures(frame)),
        )
        self._events.add(event)
        self._warn(
            f"{event}\n  other calls run eagerly; options={{{option!r}: …}} raises the limit"
        )

    def runs_eagerly(self, about: Subject, what: str, location: Location | None) -> None:
        """Told when a function runs as it is, since something in it cannot be captured."""
        event = RanEagerly(**about.fields, what=what, location=location)
        self._events.add(event)
        self._warn(
            f"{event}\n  what is called from there may still be compiled. "
            "fullgraph=True or FUSEWRIGHT_STRICT=1 makes this an error"
        )

    def _warn(self, text: str) -> None:
        """Warn, once a compiler."""
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


def _tell_backward(events: EventLog, about: Subject, training: Training) -> None:
    assert training.backward is not None
    stages = training.backward.record.timings
    kept = training.saved_bytes
    events.add(BackwardCompiled(**about.fields, stages=stages, saved_bytes=kept))


def _failures(frame: Frame) -> tuple[FailedGuard, ...]:
    """Why no entry of a frame's code holds, last used first; those without a reason left out."""
    failures = (entry.detail.explain(frame.locals, frame.function) for entry in frame.entries)
    return tuple(failure for failure in failures if failure is not None)


def _most_frequent(failures: Sequence[FailedGuard]) -> FailedGuard | None:
    """A failure of the expression that fails most often."""
    if not failures:
        return None
    (expression, _), *_ = Counter(failure.expression for failure in failures).most_common()
    return next(failure for failure in failures if failure.expression == expression)
