"""Whatever goes wrong while compiling: an error that says where, or the right result and one
warning; nothing of the process is left changed, and the next compile works.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import pytest
import torch
from torch import nn

import fusewright
from fusewright import api, pipeline
from fusewright.aot import trace as aot_trace
from fusewright.capture import frame_capture
from fusewright.compiler import Compiler
from fusewright.errors import BackendCompilerFailed, GraphFailed, Unsupported
from fusewright.kernels import define_kernels
from fusewright.lower import lower
from fusewright.runtime.loader import load_module
from fusewright.schedule import schedule
from tests.capture.agreement import assert_same
from tests.capture.soundness.injection import Injected, Point, injected, points_of
from tests.leftovers import nothing_left_changed

X = torch.arange(6.0).reshape(2, 3)


def program(x: Any, log: Any = None) -> Any:
    y = torch.relu(x) * 2
    if log is not None:
        log.append(y)
    return y.sum(-1) + 1


def live(stage: Any, compile_once: Callable[[AbstractContextManager[Any]], Any]) -> list[Point]:
    """The points in a function that a compile passes."""
    found = []
    for point in points_of(stage):
        passed: list[None] = []
        compile_once(injected(point, None, passed))
        if passed:
            found.append(point)
    assert found, "an error is injected somewhere"
    return found


# -- an error at every stage ---------------------------------------------------------------------

BACKEND_STAGES = (
    pipeline.compile_graph,
    pipeline.compile_aten,
    aot_trace.trace_inference,
    lower,
    schedule,
    define_kernels,
    load_module,
)
CAPTURE_STAGES = (
    Compiler._compile,
    frame_capture.capture_call,
    frame_capture._trace,
    frame_capture.Capture._write,
)


def compiled_program(
    options: dict[str, Any], backend: str, around: AbstractContextManager[Any] | None = None
) -> Any:
    """The program's result, compiled; `around`: what the call runs in."""
    compiled = api.compile(program, backend=backend, options=options)
    with torch.no_grad(), around or nullcontext():
        return compiled(X)


def here(point: Point) -> AbstractContextManager[Any]:
    """An error at a point."""
    return injected(point, Injected("here"))


@pytest.mark.parametrize("stage", BACKEND_STAGES, ids=lambda stage: stage.__name__)
def test_an_error_in_the_backend(stage: Any) -> None:
    options = {"strict": False}
    expected = program(X)
    for point in live(stage, lambda around: compiled_program(options, "fusewright", around)):
        with nothing_left_changed():
            with pytest.warns(RuntimeWarning, match="here") as caught:
                assert_same(compiled_program(options, "fusewright", here(point)), expected)
            assert len(caught) == 1 and __file__ in str(caught[0].message), point
            with pytest.raises(BackendCompilerFailed, match="here") as raised:
                compiled_program({"strict": True}, "fusewright", here(point))
            assert raised.value.location.file == __file__, point
        assert_same(compiled_program({"strict": True}, "fusewright"), expected)


@pytest.mark.parametrize("stage", CAPTURE_STAGES, ids=lambda stage: stage.__qualname__)
def test_an_error_in_capture(stage: Any) -> None:
    expected = program(X)
    for point in live(stage, lambda around: compiled_program({}, "eager", around)):
        with nothing_left_changed():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert_same(compiled_program({}, "eager", here(point)), expected)
            assert len(caught) == 1 and __file__ in str(caught[0].message), point
            with pytest.raises(Unsupported, match="here") as raised:
                compiled_program({"strict": True}, "eager", here(point))
            assert raised.value.location.file == __file__, point
        assert_same(compiled_program({"strict": True}, "eager"), expected)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_an_interrupt_passes_and_leaves_nothing(error: BaseException) -> None:
    for stage in (*BACKEND_STAGES, *CAPTURE_STAGES):
        for point in live(stage, lambda around: compiled_program({}, "fusewright", around)):
            with nothing_left_changed(), pytest.raises(type(error)):
                compiled_program({}, "fusewright", injected(point, error))
    assert_same(compiled_program({"strict": True}, "fusewright"), program(X))


def test_an_error_in_the_backward_half() -> None:
    model = nn.Linear(3, 2)
    expected = _step(model, None)
    for point in live(pipeline._compile_training, lambda around: _step(model, False, around)):
        with nothing_left_changed():
            with pytest.warns(RuntimeWarning, match="here"):
                torch.testing.assert_close(_step(model, False, here(point)), expected)
            with pytest.raises(BackendCompilerFailed, match="here"):
                _step(model, True, here(point))
        torch.testing.assert_close(_step(model, True), expected)


def _step(
    model: nn.Module, strict: bool | None, around: AbstractContextManager[Any] | None = None
) -> Any:
    """The gradient of a weight after one step; compiled unless `strict` is None."""
    model.zero_grad()
    run = model if strict is None else api.compile(model, options={"strict": strict})
    with around or nullcontext():
        run(X).square().sum().backward()
    return model.weight.grad.clone()


def test_out_of_memory_while_compiling() -> None:
    for stage in (pipeline.compile_aten, frame_capture._trace):
        for point in live(stage, lambda around: compiled_program({}, "fusewright", around)):
            with nothing_left_changed(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = compiled_program({}, "fusewright", injected(point, MemoryError()))
            assert_same(found, program(X))


# -- backends ------------------------------------------------------------------------------------


def test_a_backend_that_gives_nothing_to_call() -> None:
    for garbage in (None, 3, "text"):
        compiled = api.compile(program, backend=lambda graph, inputs, made=garbage: made)
        with pytest.raises(BackendCompilerFailed, match="cannot be called"):
            compiled(X)


@pytest.mark.parametrize("garbage", [None, 3, (), (1, 2, 3), "text"], ids=repr)
def test_a_backend_whose_code_gives_garbage(garbage: Any) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        return lambda *args: garbage

    with nothing_left_changed(), pytest.raises(GraphFailed, match="what backend 'backend' made"):
        api.compile(program, backend=backend, fullgraph=True)(X)
    with nothing_left_changed(), pytest.warns(RuntimeWarning, match="what backend 'backend' made"):
        result = api.compile(program, backend=backend)(X)
    assert_same(result, program(X))


def test_a_backend_whose_code_raises() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            raise Injected("at run time")

        return run

    log: list[Any] = []
    with nothing_left_changed(), pytest.raises(GraphFailed, match="Injected: at run time"):
        api.compile(program, backend=backend, fullgraph=True)(X, log)
    expected: list[Any] = []
    program(X, expected)
    assert_same(log, expected)


def test_a_backend_that_fails_once() -> None:
    attempts: list[None] = []

    def backend(graph: Any, inputs: Any) -> Any:
        attempts.append(None)
        if len(attempts) == 1:
            raise Injected("the first time")
        return graph.forward

    compiled = api.compile(program, backend=backend)
    with pytest.raises(BackendCompilerFailed):
        compiled(X)
    assert_same(compiled(X), program(X))


def test_compiling_inside_a_backend() -> None:
    inner = api.compile(lambda x: x * 3, backend="eager", fullgraph=True)

    def backend(graph: Any, inputs: Any) -> Any:
        assert_same(inner(X), X * 3)
        assert_same(api.compile(lambda x: x - 1, backend="eager", fullgraph=True)(X), X - 1)
        return graph.forward

    compiled = api.compile(program, backend=backend, fullgraph=True)
    with nothing_left_changed():
        assert_same(compiled(X), program(X))
        assert_same(compiled(X), program(X))


def test_a_backend_that_calls_the_function_being_compiled() -> None:
    depth: list[None] = []

    def backend(graph: Any, inputs: Any) -> Any:
        depth.append(None)
        if len(depth) < 4:
            assert_same(compiled(X), program(X))
        return graph.forward

    compiled = api.compile(program, backend=backend, fullgraph=True)
    with nothing_left_changed():
        assert_same(compiled(X), program(X))


# -- recursion, and code of the user's that guards must not run -----------------------------------


def test_deep_recursion() -> None:
    def descend(x: Any, n: int) -> Any:
        return x if n == 0 else descend(x + 1, n - 1) * 1

    compiled = api.compile(descend, backend="eager")
    with nothing_left_changed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(compiled(X, 150), descend(X, 150))
        assert_same(compiled(X, 500), descend(X, 500))


def test_endless_recursion() -> None:
    def endless(x: Any) -> Any:
        return endless(x + 1)

    with nothing_left_changed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RecursionError):
            api.compile(endless, backend="eager")(X)


def test_deeply_nested_containers() -> None:
    nested: Any = [X]
    for _ in range(100_000):
        nested = [nested]

    def outermost(items: Any, x: Any) -> Any:
        return x + len(items), items

    result, same = api.compile(outermost, backend="eager")(nested, X)
    assert_same(result, X + 1)
    assert same is nested


class Watched:
    """An object whose special methods say that they ran."""

    def __init__(self, log: list[str]) -> None:
        self.__dict__["log"] = log
        self.__dict__["value"] = 2

    def __eq__(self, other: object) -> bool:
        self.log.append("eq")
        return self is other

    def __hash__(self) -> int:
        self.log.append("hash")
        return 7

    def __bool__(self) -> bool:
        self.log.append("bool")
        return True

    def __len__(self) -> int:
        self.log.append("len")
        return 3

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.log.append("getattr " + name)
        return 5

    def __repr__(self) -> str:
        self.log.append("repr")
        return "watched"


WATCHED_READS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "value": lambda w, t, x: x * w.value,
    "other": lambda w, t, x: x * w.other,
    "truth": lambda w, t, x: x + 1 if w else x,
    "length": lambda w, t, x: x * len(w),
    "equal": lambda w, t, x: x + 1 if w == 3 else x,
    "identity": lambda w, t, x: x + 1 if w is None else x,
    "in a list": lambda w, t, x: x + 1 if w in [1, w] else x,
    "as a key": lambda w, t, x: x * t["first"],
    "only passed": lambda w, t, x: (w, x + 1)[1],
    "returned": lambda w, t, x: [w, x + 1],
}


@pytest.mark.parametrize("read", WATCHED_READS)
def test_special_methods_run_as_often_as_in_eager(read: str) -> None:
    function = WATCHED_READS[read]
    logs: list[list[str]] = []
    for run in (function, api.compile(function, backend="eager")):
        log: list[str] = []
        watched = Watched(log)
        table = {"first": 1, watched: 2} if read == "as a key" else {}
        run(watched, table, X)
        log.clear()
        for _ in range(3):
            log.append("call")
            run(watched, table, X)
        logs.append(log)
    expected, found = logs
    assert found == expected


class Raising:
    """An object whose special methods raise."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("eq")

    def __hash__(self) -> int:
        return 3

    def __bool__(self) -> bool:
        raise ValueError("bool")

    def __getattr__(self, name: str) -> Any:
        raise ValueError("getattr")

    def __repr__(self) -> str:
        raise ValueError("repr")


def test_objects_that_raise() -> None:
    def reads(value: Any, items: Any, x: Any) -> Any:
        return x + len(items) if value is not None else x

    compiled = api.compile(reads, backend="eager", fullgraph=True)
    raising = Raising()
    for items in ([raising], [raising, raising], {raising: 1}, (raising,)):
        assert_same(compiled(raising, items, X), reads(raising, items, X))
    assert_same(compiled(None, [1], X), X)

    def asks(value: Any, x: Any) -> Any:
        return x + 1 if value else x

    with pytest.raises(ValueError, match="bool"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        api.compile(asks, backend="eager")(raising, X)


def test_guarded_objects_that_die() -> None:
    options = {"recompile_limit": 3, "strict": True}
    compiled = api.compile(lambda f, x: f(x), backend="eager", options=options)
    for factor in range(2, 8):
        namespace: dict[str, Any] = {"factor": factor}
        exec("def f(x): return x * factor", namespace)
        assert_same(compiled(namespace["f"], X), X * factor)
        del namespace
        gc.collect()


def test_guarded_classes_that_die() -> None:
    options = {"recompile_limit": 3, "strict": True}
    compiled = api.compile(lambda o, x: x * o.scale(), backend="eager", options=options)
    for factor in range(2, 8):
        cls = type("Scaled", (), {"scale": lambda self, factor=factor: factor})
        assert_same(compiled(cls(), X), X * factor)
        del cls
        gc.collect()


# -- threads -------------------------------------------------------------------------------------


def test_one_function_from_many_threads() -> None:
    threads, rounds = 8, 50
    barrier = threading.Barrier(threads)
    compiled = api.compile(program, backend="eager", options={"strict": True})

    def work(number: int) -> None:
        for i in range(rounds):
            x = torch.full((1 + (number + i) % 4, 3), float(i))
            if i % 10 == 0:
                barrier.wait(60)
            assert_same(compiled(x), program(x))

    with nothing_left_changed(), ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def test_what_many_threads_call_first_is_compiled_once() -> None:
    threads = 12
    barrier = threading.Barrier(threads)
    compiled = api.compile(program, backend=_slow_backend, options={"strict": True})

    def work(number: int) -> None:
        x = torch.full((2 + number % 2, 3), 1.0)
        barrier.wait(60)
        assert_same(compiled(x), program(x))

    with nothing_left_changed(), ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    assert len(api.compilations(compiled)) <= 2


def _slow_backend(graph: Any, inputs: Any) -> Any:
    time.sleep(0.05)
    return graph


def test_calls_while_another_thread_resets() -> None:
    compiled = api.compile(_breaking, backend="eager")
    done = threading.Event()
    resets: list[None] = []

    def keep_resetting() -> None:
        while not done.wait(0.002):
            fusewright.reset()
            resets.append(None)

    def work(number: int) -> None:
        for i in range(30):
            x = torch.full((1 + (number + i) % 3, 3), float(i))
            assert_same(compiled(x), _breaking(x))

    with nothing_left_changed(), ThreadPoolExecutor(4) as pool:
        resetting = pool.submit(keep_resetting)
        for running in [pool.submit(work, number) for number in range(3)]:
            running.result(60)
        done.set()
        resetting.result(60)
    assert resets


def _breaking(x: Any) -> Any:
    y = x + 1
    fusewright.graph_break()
    return y * 2 if y.shape[0] > 1 else y * 3


# -- processes -----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes fork on POSIX systems only")
def test_a_forked_process_calls_and_compiles() -> None:
    compiled = api.compile(program, backend="eager", fullgraph=True)
    expected = compiled(X)
    child = os.fork()
    if child == 0:  # Nothing of the test runner may run here.
        try:
            assert_same(compiled(X), expected)
            assert_same(compiled(X.double()), program(X.double()))
            assert_same(api.compile(_breaking, backend="eager")(X), _breaking(X))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert_same(compiled(X), expected)


# -- other kinds of targets ----------------------------------------------------------------------


def test_generators_and_coroutines_as_targets() -> None:
    def generates(x: Any) -> Iterator[Any]:
        for i in range(3):
            yield x + i

    async def waits(x: Any) -> Any:
        return x * 2

    with nothing_left_changed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = api.compile(generates, backend="eager")
        assert_same(list(compiled(X)), list(generates(X)))
        assert_same(list(compiled(X)), list(generates(X)))
        coroutine = api.compile(waits, backend="eager")(X)
        with pytest.raises(StopIteration) as stopped:
            coroutine.send(None)
        assert_same(stopped.value.value, X * 2)


# -- nothing lives on ----------------------------------------------------------------------------


class Net(nn.Module):
    """A model with a break in the middle, if wanted."""

    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)
        self.breaks = breaks

    def forward(self, x: Any, holder: Any) -> Any:
        y = self.first(x)
        holder.append(y)
        if self.breaks:
            fusewright.graph_break()
        return self.second(y)


class Holder(list):  # type: ignore[type-arg]
    """A list that can be referred to weakly."""


@pytest.mark.parametrize("breaks", [False, True])
def test_nothing_keeps_a_model_alive(breaks: bool) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(weakref.ref(graph))
        return graph.forward

    model = Net(breaks)
    compiled = api.compile(model, backend=backend)
    holder = Holder()
    result = compiled(X, holder)
    assert len(graphs) == 1 + breaks
    gone = [weakref.ref(item) for item in (model, holder, holder[0], result, model.first.weight)]
    gone += graphs
    del model, compiled, holder, result
    for _ in range(2):  # The collector does not see through code, which refers to graphs.
        gc.collect()
    assert [reference() for reference in gone] == [None] * len(gone)


@pytest.mark.parametrize("breaks", [False, True])
def test_arguments_die_without_the_collector(breaks: bool) -> None:
    model = Net(breaks)
    compiled = api.compile(model, backend="eager")
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            x, holder = torch.ones(2, 3), Holder()
            result = compiled(x, holder)
            gone = [weakref.ref(item) for item in (x, holder, holder[0], result)]
            del x, holder, result
            assert [reference() for reference in gone] == [None] * len(gone)
    finally:
        gc.enable()


def _delegates(held: Any) -> Any:
    yield from _yields(held)


def _delegates_and_cleans_up(held: Any) -> Any:
    """Its handler raises the exception again, as every `yield from` does from CPython 3.12 on."""
    try:
        yield from _yields(held)
    finally:
        held.cleaned = True


def _yields(held: Any) -> Any:
    yield held


@pytest.mark.parametrize("outer", [_yields, _delegates, _delegates_and_cleans_up])
def test_a_generator_that_is_closed_keeps_nothing(outer: Callable[..., Any]) -> None:
    """Closing it raises GeneratorExit through the interpreter's own frames."""

    def closes(x, held):
        generator = outer(held)
        next(generator)
        generator.close()
        return x + 1

    compiled = api.compile(closes, backend="eager", fullgraph=True)
    gc.collect()
    gc.disable()
    try:
        held = Holder()
        compiled(X, held)
        gone = weakref.ref(held)
        del held
        assert gone() is None
    finally:
        gc.enable()


def _raises_and_handles(x: Any) -> Any:
    try:
        _raises(x)
    except ValueError as error:
        return x + len(str(error))


def _raises(x: Any) -> Any:
    raise ValueError("wrong")


def _looks_for_attributes(x: Any) -> Any:
    return x * getattr(nn.Linear(1, 1), "absent", 2) if hasattr(x, "nothing") else x


@pytest.mark.parametrize("function", [_raises_and_handles, _raises, _looks_for_attributes])
def test_exceptions_met_while_tracing_keep_nothing(function: Any) -> None:
    compiled = api.compile(function, backend="eager")
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            x = torch.ones(2, 3)
            gone = weakref.ref(x)
            with suppress(ValueError):
                compiled(x)
            del x
            assert gone() is None
    finally:
        gc.enable()


def test_arguments_die_after_an_exception() -> None:
    def raises(x: Any, n: int) -> Any:
        y = x + 1
        fusewright.graph_break()
        if n:
            raise ValueError("wrong")
        return y

    compiled = api.compile(raises, backend="eager")
    for n in (0, 1, 1):
        x = torch.ones(2, 3)
        reference = weakref.ref(x)
        try:
            compiled(x, n)
        except ValueError as error:
            assert traceback.extract_tb(error.__traceback__)[-1].line == 'raise ValueError("wrong")'
        del x
        gc.collect()
        assert reference() is None
