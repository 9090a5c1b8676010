"""The frame hook: signatures, guards, limits, errors, re-entrance, threads, leaks. Without torch.

`tests/native/test_other_pythons.py` runs this file under each CPython that is supported.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from tests.native.extension import extension

Continuation, Disabled = extension.Continuation, extension.Disabled
Entry, Frame = extension.Entry, extension.Frame
FrameCompiler, GuardProgram = extension.FrameCompiler, extension.GuardProgram
is_installed = extension.is_installed

Modes = pytest.mark.parametrize("continues", [False, True])


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert not is_installed()


def replacing(
    original: Callable[..., Any], compiled: Callable[..., Any], continues: bool = False
) -> tuple[FrameCompiler, list[Frame]]:
    """A frame compiler that replaces one function, and the frames it was asked about."""
    frames: list[Frame] = []

    def callback(frame: Frame) -> Entry | None:
        frames.append(frame)
        if frame.code is not original.__code__:
            return None
        return Entry(compiled, None, continues=continues)

    return FrameCompiler(callback), frames


def type_of_x(kind: type) -> GuardProgram:
    return GuardProgram(("x",), ((0, ("local", "x"), (("type", kind),)),))


# -- signatures ----------------------------------------------------------------------------------


def everything(a, b=2, /, c=3, *rest, d, e=5, **others):  # type: ignore[no-untyped-def]
    return "original"


def everything_compiled(a, b=2, /, c=3, *rest, d, e=5, **others):  # type: ignore[no-untyped-def]
    return a, b, c, rest, d, e, others


@Modes
@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((1,), {"d": 4}, (1, 2, 3, (), 4, 5, {})),
        ((1, 20, 30, 40, 50), {"d": 4, "e": 6, "f": 7}, (1, 20, 30, (40, 50), 4, 6, {"f": 7})),
        ((1,), {"c": 9, "d": 4, "a": 8}, (1, 2, 9, (), 4, 5, {"a": 8})),
    ],
)
def test_every_kind_of_parameter(continues: bool, args: Any, kwargs: Any, expected: Any) -> None:
    compiler, frames = replacing(everything, everything_compiled, continues)
    assert compiler.call(everything, args, kwargs) == expected
    names = ("a", "b", "c", "rest", "d", "e", "others")
    assert frames[0].locals == dict(zip(names, expected, strict=True))
    assert compiler.call(everything, args, kwargs) == expected
    assert len(frames) == 1


@Modes
def test_wrong_arguments_raise_as_ever(continues: bool) -> None:
    compiler, frames = replacing(everything, everything_compiled, continues)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'd'"):
        compiler.call(everything, (1,), None)
    assert frames == []


def test_methods_and_frame_fields() -> None:
    class Model:
        def forward(self, x: int, scale: int = 2) -> int:
            return x

    def compiled(self: Model, x: int, scale: int = 2) -> int:
        return x * scale

    compiler, frames = replacing(Model.forward, compiled)
    model = Model()
    assert compiler.call(model.forward, (5,), None) == 10
    frame = frames[0]
    assert frame.function is Model.forward and frame.code is Model.forward.__code__
    assert frame.globals is globals() and frame.closure is None and frame.entries == ()
    assert frame.builtins["len"] is len
    assert frame.locals == {"self": model, "x": 5, "scale": 2}


@Modes
def test_captured_parameters(continues: bool) -> None:
    """A parameter that an inner function captures becomes a cell as the frame starts."""

    def original(x: int) -> Callable[[], int]:
        return lambda: x

    def compiled(x: int) -> Callable[[], int]:
        return lambda: x + 100

    compiler, frames = replacing(original, compiled, continues)
    assert compiler.call(original, (5,), None)() == 105
    assert frames[0].locals == {"x": 5}


@Modes
def test_each_closure_is_its_own(continues: bool) -> None:
    def make(value: int) -> FunctionType:
        def inner(x: int) -> Any:
            return ("original", value, x)

        return inner

    def make_compiled(value: int) -> FunctionType:
        def inner(x: int) -> Any:
            return ("compiled", value, x)

        return inner

    first, second = make(1), make(2)
    compiler, frames = replacing(first, make_compiled(77), continues)
    assert compiler.call(first, (5,), None) == ("compiled", 1, 5)
    assert compiler.call(second, (6,), None) == ("compiled", 2, 6)
    assert len(frames) == 1


def test_compiled_function_must_fit() -> None:
    def original(x: int) -> int:
        return x

    def with_closure(x: int) -> Any:
        return original, x

    for wrong in (lambda: 1, with_closure, lambda x, y: 1):
        compiler = FrameCompiler(lambda frame, wrong=wrong: Entry(wrong, None))
        with pytest.raises(TypeError, match=r"parameters and free variables of .*original"):
            compiler.call(original, (1,), None)
    with pytest.raises(TypeError, match="must return None, False, or an Entry"):
        FrameCompiler(lambda frame: 5).call(original, (1,), None)
    with pytest.raises(ValueError, match="names 'x', which is no parameter"):
        Entry(lambda y: 1, type_of_x(int))


def test_only_functions_can_be_roots() -> None:
    compiler = FrameCompiler(lambda frame: None)
    with pytest.raises(TypeError, match="only a Python function or method"):
        compiler.call(len, ([],), None)
    with pytest.raises(TypeError, match="takes a function, a tuple and a dict"):
        compiler.call(len, [], None)


def test_an_entry_is_told_that_its_function_returned() -> None:
    told: list[bool] = []

    def divide(x: int) -> float:
        return 1 / x

    def tell() -> None:
        told.append(True)
        if len(told) == 2:
            raise KeyError("returned")

    compiler = FrameCompiler(lambda frame: Entry(divide, None, on_return=tell))
    with pytest.raises(ZeroDivisionError):
        compiler.call(identity, (0,), None)
    assert told == []
    assert compiler.call(identity, (2,), None) == 0.5
    with pytest.raises(KeyError, match="returned"):
        compiler.call(identity, (4,), None)
    assert len(told) == 2
    (entry,) = compiler.entries(identity.__code__)
    assert entry.on_return is tell
    assert Entry(divide, None).on_return is None


# -- guards and limits ---------------------------------------------------------------------------


def identity(x: Any) -> Any:
    return ("original", x)


def by_type(frame: Frame) -> Entry:
    """An entry for arguments of one type."""
    kind = type(frame.locals["x"])
    namespace: dict[str, Any] = {}
    exec(f"def compiled(x): return ({kind.__name__!r}, x)", namespace)
    return Entry(namespace["compiled"], type_of_x(kind), kind)


def test_entries_by_guard_and_limit() -> None:
    limited: list[Frame] = []
    compiler = FrameCompiler(by_type, 2, on_limit=lambda frame, _: limited.append(frame))
    assert compiler.call(identity, (1,), None) == ("int", 1)
    assert compiler.call(identity, ("a",), None) == ("str", "a")
    assert [entry.detail for entry in compiler.entries(identity.__code__)] == [str, int]
    assert compiler.call(identity, (2,), None) == ("int", 2)
    assert [entry.detail for entry in compiler.entries(identity.__code__)] == [int, str]
    assert limited == []
    assert compiler.call(identity, (1.5,), None) == ("original", 1.5)
    assert compiler.call(identity, (2.5,), None) == ("original", 2.5)
    assert [len(frame.entries) for frame in limited] == [2]
    assert compiler.call(identity, ("b",), None) == ("str", "b")
    compiler.reset()
    assert compiler.entries(identity.__code__) == ()
    assert compiler.call(identity, (2.5,), None) == ("float", 2.5)


def test_accumulated_limit_is_told_once_in_all() -> None:
    limited: list[tuple[str, bool]] = []

    def on_limit(frame: Frame, accumulated: bool) -> None:
        limited.append((frame.code.co_name, accumulated))

    def also(x: Any) -> Any:
        return ("original", x)

    compiler = FrameCompiler(by_type, 2, 3, on_limit)
    for argument in (1, "a", 1.5):
        compiler.call(identity, (argument,), None)
    assert limited == [("identity", False)]
    assert compiler.call(also, (1,), None) == ("int", 1)
    for function in (also, inner, inner):
        compiler.call(function, (1.5,), None)
    assert limited == [("identity", False), ("also", True)]
    assert compiler.call(also, (1,), None) == ("int", 1)
    assert (compiler.recompile_limit, compiler.accumulated_limit) == (2, 3)


def test_the_more_calls_are_not_wanted_the_fewer_are_shown() -> None:
    """Plain Python that runs behind a graph break must not pay for a question at each call."""
    asked: list[Any] = []

    def callback(frame: Frame) -> Entry | bool:
        asked.append(frame.locals["x"])
        return by_type(frame) if isinstance(frame.locals["x"], str) else False

    compiler = FrameCompiler(callback)
    for number in range(100_000):
        assert compiler.call(identity, (number,), None) == ("original", number)
    assert asked[:12] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 25]
    assert len(asked) < 30

    for _ in range(2**14 + 1):  # what is wanted is found all the same, before long
        found = compiler.call(identity, ("a",), None)
    assert found == ("str", "a")
    del asked[:]
    for number in range(20):  # and what is not wanted is shown again
        compiler.call(identity, (number,), None)
    assert asked == [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 16]


def test_dead_entries_of_other_code_make_room_in_all() -> None:
    def without_detail(frame: Frame) -> Entry:
        made = by_type(frame)
        return Entry(made.function, made.guards)

    def also(x: Any) -> Any:
        return ("original", x)

    compiler = FrameCompiler(without_detail, accumulated_limit=1)
    kind = type("Temporary", (), {})
    compiler.call(identity, (kind(),), None)
    del kind
    gc.collect()
    assert compiler.call(also, (1,), None) == ("int", 1)
    assert compiler.entries(identity.__code__) == ()


def test_dead_entries_make_room() -> None:
    def without_detail(frame: Frame) -> Entry:
        made = by_type(frame)
        return Entry(made.function, made.guards)

    compiler = FrameCompiler(without_detail, 1)
    kind = type("Temporary", (), {})
    compiler.call(identity, (kind(),), None)
    del kind
    gc.collect()
    assert len(compiler.entries(identity.__code__)) == 1
    assert compiler.call(identity, (1,), None) == ("int", 1)


def test_frame_compilers_do_not_share_entries() -> None:
    first, _ = replacing(identity, lambda x: ("first", x))
    second, _ = replacing(identity, lambda x: ("second", x))
    assert first.call(identity, (1,), None) == ("first", 1)
    assert second.call(identity, (1,), None) == ("second", 1)
    assert first.call(identity, (1,), None) == ("first", 1)
    del first
    gc.collect()
    assert second.call(identity, (1,), None) == ("second", 1)
    assert identity(1) == ("original", 1)


def test_a_second_module_object_finds_the_same_entries() -> None:
    compiler, frames = replacing(identity, lambda x: ("compiled", x))
    compiler.call(identity, (1,), None)
    again = importlib.util.module_from_spec(extension.__spec__)
    extension.__spec__.loader.exec_module(again)
    assert again.FrameCompiler is FrameCompiler
    assert compiler.call(identity, (2,), None) == ("compiled", 2)
    assert len(frames) == 1


# -- which frames --------------------------------------------------------------------------------


def outer(x: int) -> Any:
    return inner(x), [inner(i) for i in range(2)], list(generate(x)), Thing(x).value


def inner(x: int) -> int:
    return x + 1


def generate(x: int) -> Iterator[int]:
    yield inner(x)


class Thing:
    def __init__(self, x: int) -> None:
        self.value = inner(x)


def test_inner_frames_are_offered_once_each() -> None:
    seen: list[str] = []
    compiler = FrameCompiler(lambda frame: seen.append(frame.code.co_name))
    assert compiler.call(outer, (1,), None) == (2, [1, 2], [2], 2)
    assert compiler.call(outer, (1,), None) == (2, [1, 2], [2], 2)
    comprehension = ["<listcomp>"] if sys.version_info < (3, 12) else []
    assert seen == ["outer", "inner", *comprehension, "__init__"]


def test_one_entry_goes_on_and_another_does_not() -> None:
    """What is called below an entry that does not continue is left alone, above it is not."""

    def callback(frame: Frame) -> Entry | None:
        seen.append(frame.code.co_name)
        if frame.code is calls_both.__code__:
            return Entry(calls_both_compiled, None, continues=True)
        return Entry(calls_inner_compiled, None) if frame.code is calls_inner.__code__ else None

    seen: list[str] = []
    compiler = FrameCompiler(callback)
    for _ in range(2):
        assert compiler.call(calls_both, (1,), None) == (102, 2, 2)
    assert seen == ["calls_both", "calls_inner", "also_inner"]
    entries = (*compiler.entries(calls_both.__code__), *compiler.entries(calls_inner.__code__))
    assert [entry.continues for entry in entries] == [True, False]


def calls_both(x: int) -> Any:
    return "original"


def calls_both_compiled(x: int) -> Any:
    return calls_inner(x), also_inner(x), also_inner(x)


def also_inner(x: int) -> int:
    return x + 1


def calls_inner_compiled(x: int) -> int:
    return inner(x) + 100


def asks_whether_installed(x: Any) -> bool:
    installed: bool = is_installed()
    return installed


@Modes
def test_the_interpreter_is_left_alone_inside(continues: bool) -> None:
    compiler, _ = replacing(identity, asks_whether_installed, continues)
    assert compiler.call(identity, (1,), None) is continues


def calls_inner(x: int) -> int:
    return inner(x)


calls_inner_quietly = Disabled(calls_inner)


def compiled_with_calls(x: int) -> int:
    return inner(x) + calls_inner_quietly(x)


def test_compiled_code_is_not_offered_but_what_it_calls_is() -> None:
    compiler, frames = replacing(identity, compiled_with_calls, True)
    assert compiler.call(identity, (1,), None) == 4
    assert [frame.code.co_name for frame in frames] == ["identity", "inner"]


def test_callback_runs_unhooked() -> None:
    seen: list[str] = []

    def callback(frame: Frame) -> None:
        seen.append(frame.code.co_name)
        inner(1)

    FrameCompiler(callback).call(outer, (1,), None)
    assert seen.count("inner") == 1


def test_recursion_reaches_the_hook_again() -> None:
    compiler, frames = replacing(countdown, countdown_compiled, True)
    assert compiler.call(countdown, (50,), None) == ["compiled"] * 50
    assert len(frames) == 1


def countdown(n: int) -> list[str]:
    return ["original", *countdown(n - 1)] if n else []


def countdown_compiled(n: int) -> list[str]:
    return ["compiled", *countdown(n - 1)] if n else []


def compiled_with_compiled(x: int) -> Any:
    return inner_compiler.call(inner, (x,), None), inner(x)


inner_compiler, inner_frames = replacing(inner, lambda x: x + 1000)


@Modes
def test_compiled_inside_compiled(continues: bool) -> None:
    inner_compiler.reset()
    inner_frames.clear()
    compiler, frames = replacing(identity, compiled_with_compiled, continues)
    assert compiler.call(identity, (1,), None) == (1001, 2)
    assert [frame.code.co_name for frame in frames] == ["identity"] + ["inner"] * continues
    assert len(inner_frames) == 1


# -- errors and leaks ----------------------------------------------------------------------------


class Failure(Exception):
    pass


@Modes
def test_errors_reach_the_caller(continues: bool) -> None:
    def failing(frame: Frame) -> Entry:
        raise Failure("while compiling")

    def compiled(x: Any) -> Any:
        raise Failure("while running")

    compiler = FrameCompiler(failing)
    for _ in range(3):
        with pytest.raises(Failure, match="while compiling"):
            compiler.call(identity, (1,), None)
        assert not is_installed()
    compiler, _ = replacing(identity, compiled, continues)
    for _ in range(3):
        with pytest.raises(Failure, match="while running"):
            compiler.call(identity, (1,), None)
        assert not is_installed()
    assert identity(1) == ("original", 1)


@Modes
@pytest.mark.parametrize("outcome", ["entry", "none", "error"])
def test_nothing_leaks(continues: bool, outcome: str) -> None:
    class Argument:
        pass

    def callback(frame: Frame) -> Entry | None:
        if outcome == "error":
            raise Failure
        entry = Entry(lambda x: x, None, continues=continues)
        return entry if outcome == "entry" else None

    compiler = FrameCompiler(callback)
    argument = Argument()
    before = sys.getrefcount(argument)
    for _ in range(100):
        with contextlib.suppress(Failure):
            compiler.call(identity, (argument,), None)
    assert sys.getrefcount(argument) == before
    gone = weakref.ref(argument)
    del argument
    assert gone() is None


def test_a_dropped_compiler_drops_its_entries() -> None:
    class Held:
        pass

    def make() -> tuple[Any, Any]:
        held = Held()
        compiler = FrameCompiler(lambda frame: Entry(lambda x: x, None, (held, compiler)))
        compiler.call(identity, (1,), None)
        return weakref.ref(held), weakref.ref(compiler)

    gone, compiler_gone = make()
    gc.collect()
    assert gone() is None and compiler_gone() is None


def test_resetting_while_compiling_and_while_guarding() -> None:
    compilers: list[FrameCompiler] = []

    class Resets:
        @property
        def attribute(self) -> int:
            compilers[0].reset()
            return 1

    test = (0, ("local", "x"), ()), (1, ("attribute", "attribute"), (("equals", 1),))
    program = GuardProgram(("x",), test)

    def callback(frame: Frame) -> Entry:
        compilers[0].reset()
        return Entry(lambda x: "compiled", program)

    compilers.append(FrameCompiler(callback))
    for _ in range(5):
        assert compilers[0].call(identity, (Resets(),), None) == "compiled"


def test_many_frames_on_a_new_stack_chunk() -> None:
    """Frames are popped from the data stack, the first of a chunk with its chunk."""
    compiler, _ = replacing(deep, deep_compiled, True)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        for depth in (10, 600, 10, 600):
            assert compiler.call(deep, (depth,), None) == depth
    finally:
        sys.setrecursionlimit(limit)


def recurse(n: int) -> int:
    return n and 1 + recurse(n - 1)


def recurse_from_here(n: int) -> int:
    return recurse(n)


@pytest.mark.parametrize("kind", ["as it is", "entries"])
def test_a_program_may_recurse_as_deeply_as_it_could(kind: str) -> None:
    """In a process of its own: another evaluator that earlier tests left behind, torch.compile's
    say, takes C stack for each frame with or without the hook.
    """
    program = f"from tests.native.test_frame_hook import recurse_deeply; recurse_deeply({kind!r})"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def recurse_deeply(kind: str) -> None:
    """Recurse deeper than the C stack reaches with the hook on for each frame."""

    def callback(frame: Frame) -> Entry | None:
        return Entry(frame.function, None, continues=True) if kind == "entries" else None

    compiler = FrameCompiler(callback)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200_000)
    try:
        assert compiler.call(recurse_from_here, (100_000,), None) == 100_000
        assert compiler.call(recurse_from_here, (10,), None) == 10
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(RecursionError):
        compiler.call(recurse_from_here, (100_000,), None)
    assert compiler.call(recurse_from_here, (10,), None) == 10


def deep(n, a=0, b=0, c=0, d=0, e=0, f=0, g=0, h=0):  # type: ignore[no-untyped-def]
    return n and 1 + deep(n - 1)


def deep_compiled(n, a=0, b=0, c=0, d=0, e=0, f=0, g=0, h=0):  # type: ignore[no-untyped-def]
    return n and 1 + deep(n - 1, a, b, c, d, e, f, g, h)


# -- with others ---------------------------------------------------------------------------------


def test_threads_are_independent() -> None:
    compiler, _ = replacing(identity, lambda x: ("compiled", x))
    barrier = threading.Barrier(3)
    results: dict[int, list[Any]] = {}

    def work(index: int) -> None:
        barrier.wait()
        if index == 0:
            results[index] = [identity(i) for i in range(2000)]
        else:
            results[index] = [compiler.call(identity, (i,), None) for i in range(2000)]

    workers = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results[0] == [("original", i) for i in range(2000)]
    assert results[1] == results[2] == [("compiled", i) for i in range(2000)]


@Modes
def test_under_a_tracer_and_a_profiler(continues: bool) -> None:
    events: list[str] = []

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        events.append(frame.f_code.co_name)
        return tracer

    def compiled(x: Any) -> Any:
        return ("compiled", x)

    compiler, _ = replacing(identity, compiled, continues)
    for install in (sys.settrace, sys.setprofile):
        before = sys.gettrace() if install is sys.settrace else sys.getprofile()
        events.clear()
        install(tracer)
        try:
            result = compiler.call(identity, (1,), None)
        finally:
            install(before)
        assert result == ("compiled", 1)
        assert "compiled" in events and "identity" not in events


# -- calls without Python code of their own -------------------------------------------------------


def seen(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def test_a_compiled_call_passes_arguments_on() -> None:
    compiler = extension.FrameCompiler(lambda frame: None)
    plain = extension.CompiledCall(compiler, seen)
    first = extension.CompiledCall(compiler, seen, "first")
    many = tuple(range(20))
    for args, kwargs in (((), {}), ((1,), {"a": 2}), (many, {"b": 3}), (many, {})):
        assert plain(*args, **kwargs) == (args, kwargs)
        assert first(*args, **kwargs) == (("first", *args), kwargs)


def test_a_compiled_call_runs_entries_and_raises() -> None:
    entry = extension.Entry(lambda args, kwargs: 1 // args[0], None)
    wanted = lambda frame: entry if frame.code is seen.__code__ else None  # noqa: E731
    call = extension.CompiledCall(extension.FrameCompiler(wanted), seen)
    assert call(1) == 1
    with pytest.raises(ZeroDivisionError):
        call(0)
    assert not extension.is_installed()


def test_a_subclass_of_compiled_calls_is_called_natively() -> None:
    class Named(extension.CompiledCall):  # type: ignore[misc, name-defined]
        def __call__(self, *args: Any) -> Any:
            raise AssertionError

    made = Named(extension.FrameCompiler(lambda frame: None), seen)
    assert made(1) == ((1,), {})
    assert [*map(made, [2])] == [((2,), {})]
    with pytest.raises(TypeError):
        made.__init__(made, seen)
    with pytest.raises(TypeError):
        Named.__new__(Named)()
