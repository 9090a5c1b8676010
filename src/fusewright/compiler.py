"""Compiles the frames of one compiled function or module: captures each, hands its graph to the
backend, and keeps what was made.
"""

from __future__ import annotations

import os
import threading
import time
import types
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, cast

import torch

from fusewright import torch_compat
from fusewright.backends.registry import is_own_backend
from fusewright.capture import Capture, NotCaptured, capture_call
from fusewright.capture.breaks import BreakTable
from fusewright.capture.directives import (
    compiled_by_torch,
    disabled_alone,
    runs_as_written,
    torch_disabled,
)
from fusewright.capture.finalizers import holds_last_references
from fusewright.capture.guards import Guard, GuardSet, build_guards
from fusewright.capture.sizes import SizeHistory
from fusewright.capture.skipped_frames import (
    computes_with_tensors,
    is_skipped,
    is_written_by_fx,
)
from fusewright.capture.sources import LocalSource
from fusewright.capture.trace import CALL_MODULE
from fusewright.capture.versions import varying_values
from fusewright.compilation import Compilation, Settings, operator_counts
from fusewright.context import COLLECTOR_PAUSE
from fusewright.errors import FusewrightError, Unsupported
from fusewright.events import EventLog
from fusewright.interrupts import INTERRUPTS
from fusewright.native import Entry, Frame, FrameCompiler
from fusewright.progress import compiling
from fusewright.records import replace
from fusewright.reporter import Reporter, Subject

GUARD_ROUNDS: Final = 20
"""How often guards are run to measure what a call pays for them."""


RESUMED_VERSIONS: Final = 4
"""How many versions of what goes on behind a graph break may differ in a value, as the rounds of a
loop do, before one is made for all.
"""


IDLE_VERSIONS: Final = 4
"""After how many versions that compute nothing a function that runs natively, around a graph break,
is left alone.
"""

NEVER_IDLE: Final = -(2**60)
"""The count of such versions where one has computed something."""


CALLS_OF_GENERATED_CODE: Final = 3
"""After how many calls code that torch.fx has generated is captured, where it is called around a
graph break: a program may generate it anew each time, as `torch.func.linearize` does.
"""

MOST_TRIALS: Final = 1000
"""How many pieces of such code are remembered."""


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
        self._report = Reporter(settings, self.events)
        self.token: str | None = None
        """Its name in pickles, once there are any."""
        self.measures_guards = False
        """Whether the cost of guards is measured when they are made."""
        self.breaks = BreakTable()
        self.root: types.CodeType = CALL_MODULE.__code__
        """The code of the function that is compiled, wherever it stands."""
        self.frames = FrameCompiler(
            self._compile_frame,
            options.recompile_limit + settings.refuses,  # The error is raised at each call.
            options.accumulated_recompile_limit + settings.refuses,
            self._limit_reached,
        )
        self._histories: dict[types.CodeType, SizeHistory] = {}
        self._idle: Counter[types.CodeType] = Counter()
        """How many versions of code, all of them, compute nothing."""
        self._trials: Counter[str] = Counter()
        """Calls of code of torch.fx that was not captured yet, by the name of its file, which is
        its own; pieces of code that say the same are equal.
        """
        self._most_idle = max(1, min(IDLE_VERSIONS, options.recompile_limit - 1))
        self._not_compiled: set[types.CodeType] = set()
        """Code that torch's `disable(recursive=False)` was given."""
        self._lock = threading.Lock()
        _COMPILERS.add(self)
        for compilers in _WATCHED:
            compilers.append(self)

    def reset(self) -> None:
        """Forget everything compiled."""
        self.frames.reset()
        self.breaks = BreakTable()
        self._histories.clear()
        self._idle.clear()
        self._trials.clear()
        self.compilations.clear()
        self._report.reset()

    # -- one frame -------------------------------------------------------------------------------

    def _compile_frame(self, frame: Frame) -> Entry | Literal[False] | None:
        """The function to run in place of a frame, and the guards under which to run it. None: the
        frame runs as it is, always; False: this once.
        """
        if self._runs_as_written(frame):
            return None
        if torch_disabled(frame.function) or compiled_by_torch(frame.function):
            return Entry(_function(frame), None)
        if not self._is_ours(frame.code):
            if self._idle[frame.code] >= self._most_idle:
                return None
            if not self._is_worth_capturing(frame):
                return False
        if self._is_resumed(frame.code) and holds_last_references(frame):
            return False
        with INTERRUPTS.held(), self._turn():
            entry = self._made_meanwhile(frame)
            if entry is not None:
                return entry
            about = self._subject(frame)
            self._report.recompilation(about, frame)
            self.capture_count += 1
            without_hooks = torch_compat.autograd.without_saved_tensor_hooks()
            with without_hooks, COLLECTOR_PAUSE, compiling(about.name, lambda: about.place):
                try:
                    self._leave_open(frame)
                    return self._compile(frame, about)
                except (FusewrightError, Warning):
                    raise
                except Exception as error:
                    self._report.internal_error(about, error)
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
        """The entry that another thread made while this one waited, if it holds for the frame."""
        for entry in self.frames.entries(frame.code):
            if entry not in frame.entries and _holds(entry, frame):
                return entry
        return None

    def _runs_as_written(self, frame: Frame) -> bool:
        """Whether a frame is not to be captured, though those that it calls may be."""
        alone = disabled_alone(frame.function)
        if alone is not None:
            self._not_compiled.add(alone)
            return True
        if runs_as_written(frame.code) or frame.code in self._not_compiled:
            return True
        if frame.code in self.breaks.native or self._reduces_gradients(frame):
            return True
        if torch_disabled(frame.function) or compiled_by_torch(frame.function):
            return False
        return is_skipped(frame.code) and frame.code is not self.root

    def _reduces_gradients(self, frame: Frame) -> bool:
        """Whether the call is one of a compiled `DistributedDataParallel`, which runs as it is: the
        module within is compiled by itself.
        """
        target = frame.locals.get("self") if frame.code is CALL_MODULE.__code__ else None
        return torch_compat.distributed.is_data_parallel(target)

    def _is_worth_capturing(self, frame: Frame) -> bool:
        """Whether a frame that runs natively, around a graph break, may hold a graph."""
        if not computes_with_tensors(frame) or torch_compat.is_transforming():
            return False
        if not is_written_by_fx(frame.code):
            return True
        if len(self._trials) > MOST_TRIALS:
            self._trials.clear()
        self._trials[frame.code.co_filename] += 1
        return self._trials[frame.code.co_filename] > CALLS_OF_GENERATED_CODE

    def _is_ours(self, code: types.CodeType) -> bool:
        """Whether code is what the user compiles, or goes on in it after a graph break."""
        return code is self.root or self._is_resumed(code)

    def _is_resumed(self, code: types.CodeType) -> bool:
        """Whether code goes on after a graph break."""
        original, _ = self.breaks.resumes.locate(code, 0)
        return original is not code

    def _leave_open(self, frame: Frame) -> None:
        """Where the next version is the last one, and behind a graph break earlier than that, have
        it hold for all values of what the others differ in.
        """
        most = self.settings.options.recompile_limit - 1
        if self._is_resumed(frame.code):
            most = min(most, RESUMED_VERSIONS)
        if self.settings.refuses or self.settings.dynamic is False or len(frame.entries) < most:
            return
        if self._idle[frame.code] > 0:
            return
        versions = [entry.detail for entry in frame.entries if isinstance(entry.detail, GuardSet)]
        sources = varying_values(versions, frame.locals, _function(frame))
        self._history(frame.code).left_open |= sources

    def _compile(self, frame: Frame, about: Subject) -> Entry:
        self._report.capture_started(about)
        start = time.perf_counter()
        try:
            capture = capture_call(
                _function(frame),
                frame.locals,
                None if self.settings.refuses else self.breaks,
                self._history(frame.code),
            )
        except NotCaptured as failure:
            if failure.error is None:
                return self._raises(frame, about, failure)
            return self._uncaptured(frame, about, failure.guards, failure.error)
        captured = time.perf_counter()
        is_idle = capture.is_empty and capture.graph_break is None
        self._idle[frame.code] = self._idle[frame.code] + 1 if is_idle else NEVER_IDLE
        graph = capture.graph_module.graph
        operators = operator_counts(graph)
        self._report.capture_finished(about, graph, captured - start, sum(operators.values()))
        # Before the backend, which may change it.
        node_count = len(graph.nodes)
        result_count = len(cast(Sequence[Any], graph.output_node().args[0]))
        try:
            compiled = None if capture.is_empty else self._run_backend(capture, about)
        except FusewrightError:  # It may be that the backend takes no symbolic sizes.
            if self.settings.options.strict or not capture.machine.sizes.give_up_symbols():
                raise
            return self._compile(frame, about)
        ready = time.perf_counter()
        all_guards = capture.all_guards()
        failed = self._report.telling_failure(about, capture.may_return)
        try:
            function = capture.finish(self._called(compiled, result_count), failed)
        except Unsupported as error:
            return self._uncaptured(frame, about, all_guards, error)
        guards = build_guards(all_guards, frame.code)
        compilation = Compilation(
            function=about.name,
            place=about.place,
            began=start,
            capture_seconds=captured - start,
            backend_seconds=ready - captured,
            finish_seconds=time.perf_counter() - ready,
            operators=operators,
            node_count=node_count,
            input_count=sum(isinstance(example, torch.Tensor) for example in capture.inputs),
            guards=guards,
            guard_seconds=self._guard_seconds(guards, frame),
            compiled=compiled,
            captured=frame.code,
            code=function.__code__,
        )
        self.compilations.append(compilation)
        self._report.compiled(about, capture, compilation)
        breaks = capture.graph_break is not None
        tried = self._is_tried(frame, capture.inputs)
        kept = self._kept(function, frame)
        hooks = torch_compat.autograd.INNERMOST_HOOKS
        return Entry(kept, guards.program, guards, breaks, tried=tried, hooks=hooks)

    def _is_tried(self, frame: Frame, inputs: Iterable[Any] = ()) -> bool:
        """Whether calls of a frame are timed as they are written, too: those from outside, where
        their time says how long the processor computes.
        """
        return (
            self.settings.tries_eager
            and frame.code is self.root
            and not torch.cuda.is_initialized()
            and all(
                example.device.type == "cpu"
                for example in inputs
                if isinstance(example, torch.Tensor)
            )
        )

    def _history(self, code: types.CodeType) -> SizeHistory:
        """The sizes that this code was called with."""
        of_data = self.settings.options.of_data
        history = self._histories.setdefault(code, SizeHistory(self.settings.dynamic, of_data))
        if code is self.root:
            history.dynamic_shapes = self.settings.dynamic_shapes
        values, results = self.breaks.left_open(code)
        history.left_open.update(map(LocalSource, values))
        history.open_texts.update(map(LocalSource, results))
        return history

    def _run_backend(self, capture: Capture, about: Subject) -> Callable[..., Any]:
        """A captured graph as the backend compiles it. Raises BackendCompilerFailed."""
        try:
            compiled = self.settings.backend(capture.graph_module, capture.inputs)
            if not callable(compiled):
                raise TypeError(f"it returned {compiled!r}, which cannot be called")
        except Exception as error:
            raised = self._report.backend_failure(about, error)
            raise raised from (error.__cause__ if raised is error else error)
        return compiled

    def _called(
        self, compiled: Callable[..., Any] | None, result_count: int
    ) -> Callable[..., Any] | None:
        """What generated code calls: where somebody else's backend made it, with a check of what it
        returns, since a tensor in a tuple's place would be taken apart by its rows.
        """
        if compiled is None or is_own_backend(self.settings.backend):
            return compiled
        name = self.settings.backend_name

        def checked(*inputs: Any) -> Any:
            results = compiled(*inputs)
            if not isinstance(results, tuple | list):
                kind = type(results).__name__
                raise TypeError(
                    f"what backend {name!r} made returned a {kind}; it has to return a tuple or "
                    f"list of the graph's {result_count} results"
                )
            if len(results) != result_count:
                raise TypeError(
                    f"what backend {name!r} made returned {len(results)} results; the graph has "
                    f"{result_count}"
                )
            return results

        return checked

    def _uncaptured(
        self, frame: Frame, about: Subject, guards: Sequence[Guard], error: Unsupported
    ) -> Entry:
        """Run the program as it is whenever these guards hold: it does what cannot be captured."""
        if error.location is None:
            error = error.at(about.place.with_text())
        if self.settings.refuses:
            cause = error.__cause__
            # Where capture was says nothing to the user, nor does what the message says already.
            said = isinstance(cause, FusewrightError)
            raise error.with_traceback(None) from (None if said else cause)
        self._report.runs_eagerly(about, error.what, error.location)
        return self._as_it_is(frame, guards)

    def _raises(self, frame: Frame, about: Subject, failure: NotCaptured) -> Entry:
        """Run the program as it is whenever these guards hold: it raises, from its own lines. Where
        it does not, capture was wrong, which is told.
        """
        returned = self._report.raises(about, failure.raised, failure.operator)
        return self._as_it_is(frame, failure.guards, returned)

    def _as_it_is(
        self,
        frame: Frame,
        guards: Sequence[Guard],
        on_return: Callable[[], None] | None = None,
    ) -> Entry:
        kept = build_guards(guards, frame.code)
        tried = on_return is None and self._is_tried(frame)
        function = self._kept(_function(frame), frame)
        # Under a mode of the user's, what is called from there cannot be captured either.
        continues = not torch_compat.states.has_foreign_modes()
        return Entry(function, kept.program, kept, continues, on_return, tried)

    def _kept(self, function: types.FunctionType, frame: Frame) -> types.FunctionType:
        """The function as an entry holds it: one that is made anew at each call without the cells
        of this call, which would live as long as the entry.
        """
        if frame.code is self.root or not function.__closure__:
            return function
        cells = tuple(types.CellType() for _ in function.__closure__)
        return types.FunctionType(
            function.__code__, function.__globals__, function.__name__, None, cells
        )

    def _subject(self, frame: Frame) -> Subject:
        """A frame as reports name it; the compiled function by the name that the user gave."""
        about = Subject.of(frame, self.breaks.resumes)
        name = self.settings.name
        return replace(about, name=name) if name and frame.code is self.root else about

    def _limit_reached(self, frame: Frame, accumulated: bool) -> None:
        """Told by the frame hook, once a code: it gets no more entries."""
        self._report.limit_reached(self._subject(frame), frame, accumulated)

    def _guard_seconds(self, guards: GuardSet, frame: Frame) -> float | None:
        """Seconds that the guards take for this frame, if that is measured: the least of several
        rounds.
        """
        if not self.measures_guards:
            return None
        times = []
        for _ in range(GUARD_ROUNDS):
            start = time.perf_counter()
            holds = guards.check(frame.locals, _function(frame))
            times.append(time.perf_counter() - start)
            if not holds:
                return None
        return min(times)


def _function(frame: Frame) -> types.FunctionType:
    """The called function; a type checker takes the field of a class for a method."""
    return cast(types.FunctionType, frame.function)


def _holds(entry: Entry, frame: Frame) -> bool:
    guards = entry.detail
    return isinstance(guards, GuardSet) and guards.check(frame.locals, _function(frame))


_THREAD: Final = threading.local()
"""`is_compiling`: whether this thread compiles, for whatever compiler."""

_COMPILERS: weakref.WeakSet[Compiler] = weakref.WeakSet()


_WATCHED: Final[list[list[Compiler]]] = []


@contextmanager
def compilers_made() -> Iterator[list[Compiler]]:
    """The compilers that are made in this context, by any thread; the list keeps them alive."""
    compilers: list[Compiler] = []
    _WATCHED.append(compilers)
    try:
        yield compilers
    finally:
        _WATCHED[:] = [watched for watched in _WATCHED if watched is not compilers]


def reset() -> None:
    """Forget all compiled code of this process; the next calls compile again."""
    for compiler in list(_COMPILERS):
        compiler.reset()


def _after_fork() -> None:
    """In a child, no other thread is there to let go of what it held."""
    for compiler in list(_COMPILERS):
        compiler._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
