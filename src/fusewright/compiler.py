"""Compiles the frames of one compiled function or module: captures each, hands its graph to the
backend, keeps what was made, and tells what happened.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
import traceback
import types
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import torch
from torch import fx

from fusewright.backends.registry import Backend
from fusewright.capture import Capture, NotCaptured, capture_call, reasons
from fusewright.capture.directives import (
    compiled_by_torch,
    disabled_alone,
    runs_as_written,
    torch_disabled,
)
from fusewright.capture.graph_failure import Failed
from fusewright.capture.guard_set import GuardSet, build_guards
from fusewright.capture.guards import Guard
from fusewright.capture.left_alone import computes_with_tensors, is_left_alone
from fusewright.capture.resume import ResumeTable
from fusewright.capture.sizes import SizeHistory
from fusewright.capture.trace import CALL_MODULE
from fusewright.config import Options
from fusewright.context import COLLECTOR_PAUSE
from fusewright.errors import (
    BackendCompilerFailed,
    FusewrightError,
    GraphFailed,
    Location,
    NothingRaised,
    RecompileLimitExceeded,
    Unsupported,
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
    Recompiled,
)
from fusewright.logs import log_text, warn
from fusewright.native import Entry, Frame, FrameCompiler
from fusewright.records import field, record

if TYPE_CHECKING:  # Importing it takes the whole IR along.
    from fusewright.runtime.compiled import CompiledGraph, Record, Training

GUARD_ROUNDS: Final = 20
"""How often guards are run to measure what a call pays for them."""


@record(kw_only=True)
class Settings:
    """How one function or module is compiled."""

    backend: Backend
    """With the user's mode and options bound."""

    backend_name: str
    fullgraph: bool = False
    dynamic: bool | None = None
    """Whether sizes are symbols: None for those that were seen to vary."""

    options: Options = field(default_factory=Options)
    """Those of the front end."""

    name: str | None = None
    """What reports call it; None: by its own name."""

    @property
    def refuses(self) -> bool:
        """Whether what cannot be captured is an error."""
        return self.fullgraph or self.options.strict


@record(kw_only=True)
class Compilation:
    """What one capture and compilation made, for reports."""

    function: str
    """Qualified name of the captured function."""

    place: Location
    """Where it is defined, or for the rest of a function after a graph break, where that begins."""

    capture_seconds: float
    """Time to trace the frame to a graph."""

    backend_seconds: float
    """Time that the backend took."""

    finish_seconds: float
    """Time to write the new function and its guards."""

    operators: Mapping[str, int]
    """How often the graph calls each torch function or method, by name."""

    node_count: int
    """Nodes of the captured graph, inputs and output included."""

    input_count: int
    """Tensors that the graph reads: arguments, parameters, buffers."""

    guards: GuardSet
    """The guards under which the result is used; `guards.table()` prints them."""

    guard_seconds: float | None
    """Time that the guards take in one call, where it was measured."""

    compiled: Callable[..., Any] | None
    """What the backend returned; None where there was nothing to compile."""

    @property
    def seconds(self) -> dict[str, float]:
        """Time by stage, in order; stages inside others are left out."""
        timings = self.record.timings if self.record else {"backend": self.backend_seconds}
        backend = {name: spent for name, spent in timings.items() if "." not in name}
        return {"capture": self.capture_seconds, **backend, "guards": self.finish_seconds}

    @property
    def record(self) -> Record | None:
        """What the stages made, where the backend is one of ours that tells."""
        return None if self._own is None else self._own.record

    @property
    def training(self) -> Training | None:
        """What is known of the backward half, under the same condition; None for inference."""
        return None if self._own is None else self._own.training

    @property
    def _own(self) -> CompiledGraph | None:
        is_ours = type(self.compiled).__module__ == "fusewright.runtime.compiled"
        return cast("CompiledGraph", self.compiled) if is_ours else None

    @property
    def peak_bytes(self) -> int | None:
        """The most that planned buffers hold at one time; None where the backend does not tell."""
        return None if self.record is None else self.record.peak_bytes


class Compiler:
    """Compiles the frames of one compiled function or module, and keeps what it made."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.capture_count = 0
        """How many times a frame was captured: 1, and 1 for each recompilation."""
        options = settings.options
        self.compilations: deque[Compilation] = deque(maxlen=options.accumulated_recompile_limit)
        """The newest; older ones cannot be in use."""
        self.events = EventLog()
        self.measures_guards = False
        """Whether the cost of guards is measured when they are made."""
        self.resumes = ResumeTable()
        self.root: types.CodeType = CALL_MODULE.__code__
        """The code of the function that is compiled, wherever it stands."""
        self.frames = FrameCompiler(
            self._compile_frame,
            options.recompile_limit + settings.refuses,  # The error is raised at each call.
            options.accumulated_recompile_limit + settings.refuses,
            self._limit_reached,
        )
        self._histories: dict[types.CodeType, SizeHistory] = {}
        self._warned: set[str] = set()
        self._not_compiled: set[types.CodeType] = set()
        """Code that torch's `disable(recursive=False)` was given."""
        self._lock = threading.Lock()
        _COMPILERS.add(self)

    def reset(self) -> None:
        """Forget everything compiled."""
        self.frames.reset()
        self.resumes = ResumeTable()
        self._warned.clear()
        self._histories.clear()
        self.compilations.clear()
        self.events.clear()

    # -- one frame -------------------------------------------------------------------------------

    def _compile_frame(self, frame: Frame) -> Entry | Literal[False] | None:
        """What to run in place of a frame, and the guards under which to run it. None: run it as
        it is, always; False: this once.
        """
        if self._runs_as_written(frame):
            return None
        if torch_disabled(frame.function) or compiled_by_torch(frame.function):
            return Entry(_function(frame), None)
        if not (self._is_ours(frame.code) or computes_with_tensors(frame)):
            return False
        with self._turn():
            made = self._made_meanwhile(frame)
            if made is not None:
                return made
            about = self._about(frame)
            self._tell_recompilation(frame, about)
            self.capture_count += 1
            with COLLECTOR_PAUSE:
                try:
                    return self._compile(frame, about)
                except (FusewrightError, Warning):
                    raise
                except Exception as error:
                    self._failed(about, error)
                    return None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread compiles at a time, so that a function that many call at once is compiled
        once. A thread that compiles already does not wait: the other one might wait for it.
        """
        if getattr(_THREAD, "is_compiling", False):
            yield
            return
        with self._lock:
            _THREAD.is_compiling = True
            try:
                yield
            finally:
                _THREAD.is_compiling = False

    def _made_meanwhile(self, frame: Frame) -> Entry | None:
        """What another thread compiled while this one waited, if it holds for the frame."""
        for entry in self.frames.entries(frame.code):
            if entry not in frame.entries and _holds(entry, frame):
                return entry
        return None

    def _failed(self, about: _About, error: Exception) -> None:
        """Tell of an error of the compiler's own, after which a function runs as it is.
        Unsupported: that is not allowed.
        """
        reason = reasons.INTERNAL_ERROR
        text = reason.text(error=f"{type(error).__name__}: {error}")
        if self.settings.refuses:
            raise Unsupported(text, about.place, reason.remedy, reason.name) from error
        self._run_eagerly(about, text, about.place)

    def _runs_as_written(self, frame: Frame) -> bool:
        """Whether a frame is not to be captured, though those that it calls may be."""
        alone = disabled_alone(frame.function)
        if alone is not None:
            self._not_compiled.add(alone)
            return True
        if runs_as_written(frame.code) or frame.code in self._not_compiled:
            return True
        if torch_disabled(frame.function) or compiled_by_torch(frame.function):
            return False
        return is_left_alone(frame.code) and frame.code is not self.root

    def _is_ours(self, code: types.CodeType) -> bool:
        """Whether code is what the user compiles, or goes on in it after a graph break."""
        original, _ = self.resumes.locate(code, 0)
        return code is self.root or original is not code

    def _compile(self, frame: Frame, about: _About) -> Entry:
        self.events.add(CaptureStarted(**about.fields))
        start = time.perf_counter()
        try:
            capture = capture_call(
                _function(frame),
                frame.locals,
                None if self.settings.refuses else self.resumes,
                self._history(frame.code),
            )
        except NotCaptured as failure:
            if failure.error is None:
                return self._raises(frame, about, failure)
            return self._uncaptured(frame, about, failure.guards, failure.error)
        captured = time.perf_counter()
        operators = _operator_counts(capture.graph_module.graph)
        count = sum(operators.values())
        self.events.add(CaptureFinished(**about.fields, seconds=captured - start, operators=count))
        log_text("graphs", lambda: f"{about.title}\n{capture.graph_module.graph}")
        node_count = len(capture.graph_module.graph.nodes)
        compiled = None if capture.is_empty else self._run_backend(capture, about)
        ready = time.perf_counter()
        all_guards = capture.all_guards()
        try:
            function = capture.finish(compiled, self._failure_telling(about, capture.may_handle))
        except Unsupported as error:
            return self._uncaptured(frame, about, all_guards, error)
        guards = build_guards(all_guards, frame.code)
        compilation = Compilation(
            function=about.name,
            place=about.place,
            capture_seconds=captured - start,
            backend_seconds=ready - captured,
            finish_seconds=time.perf_counter() - ready,
            operators=operators,
            node_count=node_count,
            input_count=sum(isinstance(one, torch.Tensor) for one in capture.inputs),
            guards=guards,
            guard_seconds=_guard_seconds(guards, frame) if self.measures_guards else None,
            compiled=compiled,
        )
        self._tell_result(capture, compilation, about)
        breaks = capture.graph_break is not None
        return Entry(self._kept(function, frame), guards.program, guards, breaks)

    def _history(self, code: types.CodeType) -> SizeHistory:
        """What sizes this code was called with."""
        of_data = self.settings.options.capture_data_dependent_sizes
        return self._histories.setdefault(code, SizeHistory(self.settings.dynamic, of_data))

    def _run_backend(self, capture: Capture, about: _About) -> Callable[..., Any]:
        """What the backend makes of a captured graph. Raises BackendCompilerFailed."""
        try:
            compiled = self.settings.backend(capture.graph_module, capture.inputs)
            if not callable(compiled):
                raise TypeError(f"it returned {compiled!r}, which cannot be called")
        except Exception as error:
            raised = self._backend_failure(error, about)
            raise raised from (error.__cause__ if raised is error else error)
        return compiled

    def _backend_failure(self, error: Exception, about: _About) -> FusewrightError:
        """The error to raise for what a backend raised; it is told."""
        location = getattr(error, "location", None)
        message = f"{type(error).__name__}: {error}"
        self.events.add(
            BackendFailed(
                **about.fields,
                backend=self.settings.backend_name,
                stage=getattr(error, "stage", "backend"),
                location=location,
                message=message,
            )
        )
        if isinstance(error, FusewrightError):
            return error
        at = location or about.place
        return BackendCompilerFailed(self.settings.backend_name, "backend", at, message)

    def _uncaptured(
        self, frame: Frame, about: _About, guards: Sequence[Guard], error: Unsupported
    ) -> Entry:
        """Run the program as it is whenever these guards hold: it does what cannot be captured."""
        if error.location is None:
            error = error.at(about.place.with_text())
        if self.settings.refuses:
            raise error from error.__cause__
        self._run_eagerly(about, error.what, error.location)
        return self._as_it_is(frame, guards)

    def _raises(self, frame: Frame, about: _About, failure: NotCaptured) -> Entry:
        """Run the program as it is whenever these guards hold: it raises, from its own lines. Where
        it does not, capture was wrong, which is told.
        """
        what = f"the program raises {failure.raised}, from its own lines"
        self.events.add(RanEagerly(**about.fields, what=what, location=None))
        error = NothingRaised(about.name, about.place, failure.raised)
        returned = functools.partial(self._defect, about, error)
        return self._as_it_is(frame, failure.guards, returned)

    def _failure_telling(self, about: _About, may_handle: bool) -> Failed:
        """What generated code tells of a graph that raised. It must not keep the compiler alive:
        the collector does not see through code.
        """
        tell = weakref.WeakMethod(self._graph_failed)

        def failed(error: Exception) -> Callable[[], None] | None:
            graph_failed = tell()
            assert graph_failed is not None, "a compiler lives while what it made runs"
            return graph_failed(about, may_handle, error)

        return failed

    def _graph_failed(
        self, about: _About, may_handle: bool, error: Exception
    ) -> Callable[[], None] | None:
        """Tell that a graph raised while it ran, and that the call begins again as it was written.
        What to call if that returns though it handles no exceptions.
        """
        raised = f"{type(error).__name__}: {error}"
        what = f"the graph raised {raised}; the call runs as it was written"
        self.events.add(RanEagerly(**about.fields, what=what, location=None))
        if may_handle:
            return None
        where = "".join(traceback.format_tb(error.__traceback__)[-2:])
        defect = GraphFailed(about.name, about.place, raised, where)
        return functools.partial(self._defect, about, defect)

    def _defect(self, about: _About, error: FusewrightError) -> None:
        """Tell, once, of a call that returned and should not have; raise where told to."""
        if self.settings.refuses:
            raise error
        if str(error) not in self._warned:
            self.events.add(RanEagerly(**about.fields, what=str(error), location=None))
            self._warn(str(error))

    def _as_it_is(
        self,
        frame: Frame,
        guards: Sequence[Guard],
        on_return: Callable[[], None] | None = None,
    ) -> Entry:
        kept = build_guards(guards, frame.code)
        return Entry(self._kept(_function(frame), frame), kept.program, kept, True, on_return)

    def _kept(self, function: types.FunctionType, frame: Frame) -> types.FunctionType:
        """What an entry holds for a function: of one that is made anew at each call, not the cells
        of this call, which would live as long as the entry.
        """
        if frame.code is self.root or not function.__closure__:
            return function
        cells = tuple(types.CellType() for _ in function.__closure__)
        return types.FunctionType(
            function.__code__, function.__globals__, function.__name__, None, cells
        )

    def _about(self, frame: Frame) -> _About:
        """What to call a frame; the compiled function itself by the name that the user gave."""
        about = _About.frame(frame, self.resumes)
        name = self.settings.name
        return _About(name, about.place) if name and frame.code is self.root else about

    # -- what happened ---------------------------------------------------------------------------

    def _tell_result(self, capture: Capture, compilation: Compilation, about: _About) -> None:
        """Keep what was made, and tell of it."""
        self.compilations.append(compilation)
        operators = sum(compilation.operators.values())
        failure = getattr(compilation.compiled, "failure", None)
        if failure is not None:  # The backend has warned of it.
            what = f"stage {failure.stage} failed: {failure.detail}"
            self.events.add(RanEagerly(**about.fields, what=what, location=failure.location))
        elif compilation.compiled is not None:
            self.events.add(
                GraphCompiled(
                    **about.fields,
                    backend=self.settings.backend_name,
                    operators=operators,
                    inputs=compilation.input_count,
                    guards=len(compilation.guards.checks),
                    stages=compilation.seconds,
                    peak_bytes=compilation.peak_bytes,
                )
            )
        if compilation.training is not None:
            compilation.training.tell = functools.partial(_tell_backward, self.events, about)
        log_text("guards", lambda: f"{about.title}\n{compilation.guards.table()}")
        if capture.graph_break is not None:
            error = capture.graph_break.error
            self.events.add(
                GraphBreak(
                    **about.fields,
                    reason=error.reason,
                    what=error.what,
                    remedy=error.remedy,
                    location=error.location,
                    stack=error.stack,
                    operators_before=operators,
                )
            )

    def _tell_recompilation(self, frame: Frame, about: _About) -> None:
        """Say why none of the entries could be used. RecompileLimitExceeded: there are too many,
        and running eagerly is not allowed.
        """
        if not frame.entries:
            return
        failures = _failures(frame)
        options = self.settings.options
        limit, option = min(
            (options.recompile_limit, "recompile_limit"),
            (options.accumulated_recompile_limit, "accumulated_recompile_limit"),
        )
        if self.settings.refuses and len(frame.entries) >= limit:
            failing = str(_most_frequent(failures) or "unknown")
            raise RecompileLimitExceeded(about.name, about.place, option, limit, failing)
        self.events.add(Recompiled(**about.fields, failures=failures))

    def _limit_reached(self, frame: Frame, accumulated: bool) -> None:
        """Told by the frame hook, once a code: it gets no more entries."""
        about = self._about(frame)
        option = "accumulated_recompile_limit" if accumulated else "recompile_limit"
        limit = getattr(self.settings.options, option)
        event = LimitReached(
            **about.fields,
            limit=limit,
            option=option,
            failure=_most_frequent(_failures(frame)),
        )
        self.events.add(event)
        self._warn(
            f"{event}\n  other calls run eagerly; options={{{option!r}: …}} raises the limit"
        )

    def _run_eagerly(self, about: _About, what: str, location: Location | None) -> None:
        event = RanEagerly(**about.fields, what=what, location=location)
        self.events.add(event)
        self._warn(
            f"{event}\n  what is called from there may still be compiled. "
            "fullgraph=True or FUSEWRIGHT_STRICT=1 makes this an error"
        )

    def _warn(self, text: str) -> None:
        """Warn, once a compiler."""
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


@record
class _About:
    """The function that a frame belongs to, as users know it."""

    name: str
    place: Location

    @classmethod
    def frame(cls, frame: Frame, resumes: ResumeTable) -> _About:
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
        """What every event begins with."""
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


def _tell_backward(events: EventLog, about: _About, training: Training) -> None:
    assert training.backward is not None
    stages = training.backward.record.timings
    kept = training.saved_bytes
    events.add(BackwardCompiled(**about.fields, stages=stages, saved_bytes=kept))


def _operator_counts(graph: fx.Graph) -> Counter[str]:
    """How often a graph calls each torch function or method, by name."""
    calls = (node.target for node in graph.nodes if node.op.startswith("call_"))
    return Counter(getattr(target, "__name__", str(target)) for target in calls)


def _function(frame: Frame) -> types.FunctionType:
    """The called function; a type checker takes the field of a class for a method."""
    return cast(types.FunctionType, frame.function)


def _failures(frame: Frame) -> tuple[FailedGuard, ...]:
    """Why no entry of a frame's code holds, last used first; those without a reason left out."""
    found = (entry.detail.explain(frame.locals, frame.function) for entry in frame.entries)
    return tuple(failure for failure in found if failure is not None)


def _most_frequent(failures: Sequence[FailedGuard]) -> FailedGuard | None:
    """A failure of the expression that fails most often."""
    if not failures:
        return None
    (expression, _), *_ = Counter(failure.expression for failure in failures).most_common()
    return next(failure for failure in failures if failure.expression == expression)


def _guard_seconds(guards: GuardSet, frame: Frame) -> float | None:
    """Seconds that the guards take for this frame; the least of several rounds."""
    times = []
    for _ in range(GUARD_ROUNDS):
        start = time.perf_counter()
        holds = guards.check(frame.locals, _function(frame))
        times.append(time.perf_counter() - start)
        if not holds:
            return None
    return min(times)


def _holds(entry: Entry, frame: Frame) -> bool:
    guards = entry.detail
    return isinstance(guards, GuardSet) and guards.check(frame.locals, _function(frame))


_THREAD: Final = threading.local()
"""`is_compiling`: whether this thread compiles, for whatever compiler."""

_COMPILERS: weakref.WeakSet[Compiler] = weakref.WeakSet()


def reset() -> None:
    """Forget all compiled code of this process; the next calls compile again."""
    for compiler in list(_COMPILERS):
        compiler.reset()


def _after_fork() -> None:
    """In a child, no other thread is there to let go of what it held."""
    for compiler in list(_COMPILERS):
        compiler._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
