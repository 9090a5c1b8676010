"""The public entry points: `compile` a function or module, `disable` compilation of one, `reset`
what was compiled.
"""

from __future__ import annotations

import copy
import functools
import gc
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from fusewright.backends.registry import Backend, backend_name, configured_backend
from fusewright.capture import Capture, NotCaptured, capture_call
from fusewright.capture.guard_set import GuardSet, build_guards
from fusewright.capture.guards import Guard
from fusewright.capture.handlers import handles
from fusewright.capture.trace import CALL_MODULE, root_call
from fusewright.config import front_end_options
from fusewright.errors import BackendCompilerFailed, FusewrightError, Unsupported
from fusewright.native import Entry, Frame, FrameCompiler, disable


def compile(
    target: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend = "fusewright",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or an `nn.Module`; also a decorator, with or without arguments.

    The first call with arguments of some kind (shapes, dtypes, the Python values that were read)
    captures and compiles; later calls of that kind run the compiled code. A compiled module is the
    module itself with a compiled call: it has the same attributes, parameters and state, and is an
    instance of the same class.

    `fullgraph`: what cannot be captured is an error instead of running eagerly with one warning.
    `dynamic`: None or False; symbolic sizes come with a later version. `backend`: "fusewright",
    "eager" (capture alone), or a callable `(graph_module, example_inputs) -> callable`. `mode`:
    None or "default". `options`: the fields of `fusewright.config.Options`. `disable`: return the
    target as it is.

    Raises: ValueError for an unknown backend or mode, TypeError for a target that is not callable
    or an unknown option; when
    called, `Unsupported` under `fullgraph` or strict, and BackendCompilerFailed.
    """
    if target is None:
        return functools.partial(
            compile,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            disable=disable,
        )
    if not callable(target):
        raise TypeError(f"fusewright.compile takes a function or a module, not {target!r}")
    if dynamic:
        raise ValueError(
            "dynamic=True is not available yet; leave it out, or use torch.compile's front end"
        )
    if disable:
        return target
    compiler = Compiler(
        backend=configured_backend(backend, mode, options),
        name=backend_name(backend),
        fullgraph=fullgraph,
        strict=front_end_options(options).strict,
    )
    if isinstance(target, torch.nn.Module):
        settings = {"fullgraph": fullgraph, "backend": backend, "mode": mode, "options": options}
        return _compiled_module(target, compiler, settings)
    return CompiledFunction(target, compiler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What one capture and compilation made, for reports."""

    capture_seconds: float
    """Time to trace the frame to a graph."""

    backend_seconds: float
    """Time that the backend took."""

    finish_seconds: float
    """Time to write the new function and its guards."""

    node_count: int
    """Nodes of the captured graph, inputs and output included."""

    input_count: int
    """Tensors that the graph reads: arguments, parameters, buffers."""

    guards: GuardSet
    """The guards under which the result is used; `guards.table()` prints them."""

    compiled: Callable[..., Any]
    """What the backend returned."""


class Compiler:
    """Compiles the frames of one compiled function or module, and keeps what it made."""

    def __init__(self, *, backend: Backend, name: str, fullgraph: bool, strict: bool) -> None:
        self.backend = backend
        self.name = name
        self.refuses = fullgraph or strict
        """Whether what cannot be captured is an error."""
        self.capture_count = 0
        """How many times a frame was captured: 1, and 1 for each recompilation."""
        self.compilations: list[Compilation] = []
        self.frames = FrameCompiler(self._compile_frame)
        self._warned: set[str] = set()
        _COMPILERS.add(self)

    def call(
        self, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`function(*args, **kwargs)`, compiled."""
        return self.frames.call(function, args, kwargs)

    def reset(self) -> None:
        """Forget everything compiled."""
        self.frames.reset()
        self._warned.clear()
        self.compilations.clear()

    def _compile_frame(self, frame: Frame) -> Entry | None:
        """What to run in place of a frame, and the guards under which to run it."""
        self.capture_count += 1
        with _COLLECTOR_PAUSE:
            return self._compile(frame)

    def _compile(self, frame: Frame) -> Entry:
        start = time.perf_counter()
        try:
            capture = capture_call(cast(types.FunctionType, frame.function), frame.locals)
        except NotCaptured as failure:
            return self._uncaptured(frame, failure.guards, failure.error)
        captured = time.perf_counter()
        compiled = self._run_backend(capture)
        ready = time.perf_counter()
        try:
            function = capture.finish(compiled)
        except Unsupported as error:
            return self._uncaptured(frame, capture.guards, error)
        guards = build_guards(capture.guards, frame.code)
        self.compilations.append(
            Compilation(
                capture_seconds=captured - start,
                backend_seconds=ready - captured,
                finish_seconds=time.perf_counter() - ready,
                node_count=len(capture.graph_module.graph.nodes),
                input_count=len(capture.inputs),
                guards=guards,
                compiled=compiled,
            )
        )
        return _entry(function, guards)

    def _run_backend(self, capture: Capture) -> Callable[..., Any]:
        try:
            return self.backend(capture.graph_module, capture.inputs)
        except FusewrightError:
            raise
        except Exception as error:
            raise BackendCompilerFailed(
                self.name, "backend", None, f"{type(error).__name__}: {error}"
            ) from error

    def _uncaptured(
        self, frame: Frame, guards: Sequence[Guard], error: Unsupported | None
    ) -> Entry:
        """Run the program as it is whenever these guards hold: it raises, or it does what cannot
        be captured.
        """
        if error is not None:
            if self.refuses:
                raise error from None
            self._warn(error)
        function = cast(types.FunctionType, frame.function)
        return _entry(function, build_guards(guards, frame.code))

    def _warn(self, error: Unsupported) -> None:
        text = str(error)
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(
                f"fusewright runs this call eagerly, since it cannot be captured:\n{text}\n"
                "fullgraph=True or FUSEWRIGHT_STRICT=1 makes this an error.",
                RuntimeWarning,
                stacklevel=3,
            )


class _CollectorPause:
    """Keeps the garbage collector from scanning the whole process while any thread compiles.

    Compiling makes objects by the ten thousands, few of them garbage; a full collection beside a
    large library takes longer than capturing a model.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._was_enabled:
                gc.enable()


_COLLECTOR_PAUSE = _CollectorPause()


def _entry(function: types.FunctionType, guards: GuardSet) -> Entry:
    return Entry(function, guards.program, guards)


def compilations(target: Any) -> tuple[Compilation, ...]:
    """What was compiled so far for a compiled function or module, oldest first.

    Raises: TypeError when `target` did not come from `compile`.
    """
    match target:
        case CompiledFunction():
            return tuple(target.compiler.compilations)
        case CompiledModule():
            return tuple(_MODULES[target][1].compilations)
        case _:
            raise TypeError(f"{target!r} is not compiled")


_COMPILERS: weakref.WeakSet[Compiler] = weakref.WeakSet()


def reset() -> None:
    """Forget all compiled code of this process; the next calls compile again."""
    for compiler in list(_COMPILERS):
        compiler.reset()


class CompiledFunction:
    """A function that is compiled when it is called. Attributes are those of the original, which
    is `__wrapped__`.
    """

    def __init__(self, function: Callable[..., Any], compiler: Compiler) -> None:
        functools.update_wrapper(self, function)
        self.compiler = compiler
        self._root, self._bound, _ = root_call(function, (), {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiler.call(self._root, (*self._bound, *args), kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<compiled {self.__wrapped__!r}>"  # type: ignore[attr-defined]


def _compiled_module(
    module: torch.nn.Module, compiler: Compiler, settings: dict[str, Any]
) -> torch.nn.Module:
    """A second face of `module`: an object that shares its `__dict__` and is called compiled.

    Sharing the dictionary makes every attribute, parameter, buffer, hook and mode the same in
    both, with the module's own
    keys in `state_dict`.
    """
    cls = type(module)
    namespace = {"__slots__": (), "__module__": cls.__module__}
    face: Any = type(cls.__name__, (CompiledModule, cls), namespace)
    compiled = object.__new__(face)
    object.__setattr__(compiled, "__dict__", module.__dict__)
    _MODULES[compiled] = (module, compiler, settings)
    return compiled  # type: ignore[no-any-return]


_MODULES: weakref.WeakKeyDictionary[Any, tuple[torch.nn.Module, Compiler, dict[str, Any]]] = (
    weakref.WeakKeyDictionary()
)
"""The module behind each compiled module, its compiler, and the arguments of `compile`.
(`__dict__` is the module's.)
"""


class CompiledModule:
    """What a compiled module's class adds to the module's class."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, compiler, _ = _MODULES[self]
        return compiler.call(CALL_MODULE, (module, *args), kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        module, _, settings = _MODULES[self]
        return compile(copy.deepcopy(module, memo), **settings)

    def __reduce__(self) -> Any:
        module, _, settings = _MODULES[self]
        return functools.partial(compile, **settings), (module,)


@handles(CompiledFunction.__call__)
def _inline_compiled_function(interpreter: Any, compiled: Any, *args: Any, **kwargs: Any) -> Any:
    """Compiled code met while capturing belongs to the capture: its original is inlined."""
    original = interpreter.attribute(compiled, "__wrapped__")
    return interpreter.call(original, list(args), kwargs)


@handles(CompiledModule.__call__)
def _inline_compiled_module(interpreter: Any, compiled: Any, *args: Any, **kwargs: Any) -> Any:
    call, source = interpreter.class_attribute(torch.nn.Module, "__call__")
    bound = interpreter.bind(call, source, compiled, compiled.python_type())
    return interpreter.call(bound, list(args), kwargs)


__all__ = [
    "Compilation",
    "CompiledFunction",
    "CompiledModule",
    "Compiler",
    "compilations",
    "compile",
    "disable",
    "reset",
]
