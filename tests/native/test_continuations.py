"""Continuations: calls that go on in other functions, one by one, without recursion. Without torch.

`tests/native/test_other_pythons.py` runs this file under each CPython that is supported.
"""

from __future__ import annotations

import gc
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.native.extension import extension

Continuation, Disabled = extension.Continuation, extension.Disabled
Entry, Frame = extension.Entry, extension.Frame
FrameCompiler, GuardProgram = extension.FrameCompiler, extension.GuardProgram
is_installed = extension.is_installed


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    now.__dict__.clear()
    assert not is_installed()


def compiling(*pairs: tuple[Callable[..., Any], Callable[..., Any]]) -> tuple[Any, list[str]]:
    """A frame compiler that replaces functions, and the names of those it was asked about."""
    asked: list[str] = []
    replacements = {original.__code__: compiled for original, compiled in pairs}

    def callback(frame: Frame) -> Entry | None:
        asked.append(frame.code.co_name)
        compiled = replacements.get(frame.code)
        return Entry(compiled, None, continues=True) if compiled else None

    return FrameCompiler(callback), asked


now: Any = SimpleNamespace()
"""What compiled functions of the test that runs need: they have the free variables of the original,
none."""


def start(x: Any) -> Any:
    return "original"


def resume(x: Any, y: Any) -> Any:
    return ("as it is", x, y)


def goes_on(x: Any) -> Any:
    return Continuation(resume, (x, x + 1))


def test_the_type() -> None:
    continuation = Continuation(resume, (1, 2))
    assert continuation.function is resume and continuation.arguments == (1, 2)
    for arguments in ((resume,), (resume, [1]), (len, ()), (resume, (1, 2), 3)):
        with pytest.raises(TypeError, match="Continuation takes"):
            Continuation(*arguments)
    with pytest.raises(TypeError):
        Continuation(function=resume, arguments=())


def test_a_continuation_runs_as_it_is() -> None:
    compiler, asked = compiling((start, goes_on))
    for _ in range(2):
        assert compiler.call(start, (1,), None) == ("as it is", 1, 2)
    assert asked == ["start", "resume"]


def test_a_continuation_is_compiled_under_its_guards() -> None:
    frames: list[Frame] = []

    def callback(frame: Frame) -> Entry:
        frames.append(frame)
        if frame.code is start.__code__:
            return Entry(goes_on, None, continues=True)
        node = (0, ("local", "y"), (("equals", frame.locals["y"]),))
        return Entry(lambda x, y: ("compiled", x, y), GuardProgram(("y",), (node,)))

    compiler = FrameCompiler(callback)
    for argument in (1, 2, 1, 2):
        result = compiler.call(start, (argument,), None)
        assert result == ("compiled", argument, argument + 1)
    assert [frame.locals for frame in frames] == [{"x": 1}, {"x": 1, "y": 2}, {"x": 2, "y": 3}]
    assert frames[1].function is resume and frames[1].globals is globals()
    assert len(frames[2].entries) == 1


def test_only_compiled_code_goes_on() -> None:
    """A Continuation that the program itself makes is an object like others."""
    compiler, _ = compiling()
    assert type(compiler.call(goes_on, (1,), None)) is Continuation


def with_every_kind(x: Any, *rest: Any, key: Any, **others: Any) -> Any:
    return x, rest, key, others


def test_a_continuation_may_name_its_entry() -> None:
    """The function then takes its locals in their order, and nothing is looked up."""
    told: list[bool] = []
    entry = Entry(with_every_kind, None, on_return=lambda: told.append(True))
    going_on = Continuation(with_every_kind, (1, "key", (2,), {"n": 3}), entry)
    assert going_on.entry is entry and Continuation(resume, (1, 2)).entry is None
    now.going_on = going_on
    compiler, asked = compiling((start, lambda x: now.going_on))
    assert compiler.call(start, (1,), None) == (1, (2,), "key", {"n": 3})
    assert (asked, told) == (["start"], [True])


def test_an_entry_that_does_not_fit_its_continuation() -> None:
    for arguments, entry in (((1,), Entry(resume, None)), ((1, 2), Entry(start, None))):
        now.going_on = Continuation(resume, arguments, entry)
        compiler, _ = compiling((start, lambda x: now.going_on))
        with pytest.raises(TypeError, match="must take just as many"):
            compiler.call(start, (1,), None)


class Counted:
    alive = 0

    def __init__(self) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


def step(count: int, argument: Counted) -> Any:
    now.most = max(now.most, Counted.alive)
    return Continuation(step, (count - 1, Counted())) if count else "done"


def test_a_hundred_thousand_in_a_row() -> None:
    now.most = 0
    compiler, asked = compiling((start, lambda x: Continuation(step, (x, Counted()))))
    assert sys.getrecursionlimit() <= 10_000
    assert compiler.call(start, (100_000,), None) == "done"
    assert asked == ["start", "__init__", "step", "__del__"]
    assert now.most <= 2 and Counted.alive == 0


def test_compiled_continuations_in_a_row() -> None:
    def never(count: int, argument: Counted) -> Any:
        raise AssertionError

    now.never = never
    compiler, asked = compiling(
        (start, lambda x: Continuation(now.never, (x, Counted()))),
        (never, lambda n, x: Continuation(now.never, (n - 1, Counted())) if n else "done"),
    )
    assert compiler.call(start, (100_000,), None) == "done"
    assert asked == ["start", "__init__", "never", "__del__"] and Counted.alive == 0


class Held:
    pass


def drops(x: Any, gone: Any) -> bool:
    del x
    return gone() is None


def hand_over(x: Any) -> Any:
    held = Held()
    return Continuation(drops, (held, weakref.ref(held)))


def test_arguments_die_when_the_program_drops_them() -> None:
    """The continuation does not keep what the function that runs has let go."""
    for pairs in ([(start, hand_over)], [(start, hand_over), (drops, drops)]):
        compiler, _ = compiling(*pairs)
        assert compiler.call(start, (1,), None) is True


def test_inner_frames_of_a_continuation_are_offered() -> None:
    def helper(x: int) -> int:
        return x

    now.helper = helper
    compiler, asked = compiling(
        (start, lambda x: Continuation(calls_helper, (x, x))), (helper, lambda x: x + 100)
    )
    assert compiler.call(start, (1,), None) == 202
    assert asked == ["start", "calls_helper", "helper"]


def calls_helper(x: int, y: int) -> int:
    return now.helper(x) + now.helper(y)  # type: ignore[no-any-return]


def test_a_called_function_goes_on_inside_another() -> None:
    def outer(x: int) -> Any:
        return "original"

    compiler, asked = compiling((outer, lambda x: [start(x), start(x)]), (start, goes_on))
    assert compiler.call(outer, (1,), None) == [("as it is", 1, 2)] * 2
    assert asked == ["outer", "start", "resume"]


def test_closures_over_one_code() -> None:
    def make(value: int) -> Any:
        def resume_with_closure(x: int) -> Any:
            return ("original", value, x)

        return resume_with_closure

    def make_compiled(value: int) -> Any:
        def compiled(x: int) -> Any:
            return ("compiled", value, x)

        return compiled

    now.make = make
    compiler, asked = compiling(
        (start, lambda x: Continuation(now.make(x), (x,))), (make(0), make_compiled(77))
    )
    for argument in (5, 6):
        assert compiler.call(start, (argument,), None) == ("compiled", argument, argument)
    assert asked.count("resume_with_closure") == 1


@pytest.mark.parametrize("arguments", [(), (1,), (1, 2, 3)])
def test_wrong_number_of_arguments(arguments: tuple[int, ...]) -> None:
    now.arguments = arguments
    compiler, _ = compiling((start, lambda x: Continuation(resume, now.arguments)))
    with pytest.raises(TypeError, match=rf"gives {len(arguments)} arguments to resume"):
        compiler.call(start, (1,), None)


def test_other_than_positional_parameters() -> None:
    def keyword(x: int, *, y: int = 1) -> int:
        return x

    def rest(*x: int) -> Any:
        return x

    for pair in ((keyword, (1, 2)), (rest, ((1,),))):
        now.pair = pair
        compiler, _ = compiling((start, lambda x: Continuation(*now.pair)))
        with pytest.raises(TypeError, match="all positional"):
            compiler.call(start, (1,), None)


class Failure(Exception):
    pass


def fails(x: Any, y: Any) -> Any:
    raise Failure("in the continuation")


def test_errors_have_the_lines_of_the_function_that_runs() -> None:
    compiler, _ = compiling((start, lambda x: Continuation(fails, (1, 2))))
    for _ in range(3):
        with pytest.raises(Failure) as caught:
            compiler.call(start, (1,), None)
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert names[-1] == "fails" and "start" not in names
        assert not is_installed()


def test_errors_while_compiling_a_continuation() -> None:
    def callback(frame: Frame) -> Entry:
        if frame.code is start.__code__:
            return Entry(goes_on, None, continues=True)
        raise Failure("while compiling")

    compiler = FrameCompiler(callback)
    for _ in range(3):
        with pytest.raises(Failure, match="while compiling"):
            compiler.call(start, (1,), None)


def test_the_limit_holds_for_continuations() -> None:
    def callback(frame: Frame) -> Entry:
        if frame.code is start.__code__:
            return Entry(goes_on, None, continues=True)
        node = (0, ("local", "y"), (("equals", frame.locals["y"]),))
        return Entry(lambda x, y: "compiled", GuardProgram(("y",), (node,)))

    told: list[str] = []
    compiler = FrameCompiler(callback, 2, on_limit=lambda frame, _: told.append(frame.code.co_name))
    results = [compiler.call(start, (argument,), None) for argument in range(4)]
    assert results == ["compiled", "compiled", ("as it is", 2, 3), ("as it is", 3, 4)]
    assert told == ["resume"]


def test_disabled_inside() -> None:
    def helper(x: int) -> str:
        return "original"

    now.helper = helper
    now.disabled = Disabled(helper)
    compiler, asked = compiling(
        (start, goes_on),
        (resume, lambda x, y: (now.disabled(x), now.helper(x))),
        (helper, lambda x: "compiled"),
    )
    assert compiler.call(start, (1,), None) == ("original", "compiled")
    assert asked == ["start", "resume", "helper"]


def test_another_compiler_inside() -> None:
    def helper(x: int) -> Any:
        return ("original", x)

    now.helper = helper
    now.other, asked_other = compiling((helper, lambda x: Continuation(resume, (x, "other"))))
    compiler, asked = compiling((start, lambda x: Continuation(calls_other, (x, x))))
    for _ in range(2):
        result = compiler.call(start, (1,), None)
        assert result == (("as it is", 1, "other"), ("original", 1))
    assert asked == ["start", "calls_other", "helper"] and asked_other == ["helper", "resume"]


def calls_other(x: int, y: int) -> Any:
    return now.other.call(now.helper, (x,), None), now.helper(x)


def resets(x: Any) -> Any:
    now.compiler.reset()
    return Continuation(resume, (x, x))


def test_resetting_between_a_call_and_its_continuation() -> None:
    now.compiler, asked = compiling((start, resets), (resume, lambda x, y: now.compiler.reset()))
    for _ in range(3):
        assert now.compiler.call(start, (1,), None) is None
    assert asked == ["start", "resume"] * 3


def test_a_cycle_through_a_continuation_is_collected() -> None:
    held = Held()
    held.continuation = Continuation(resume, (held, 1))  # type: ignore[attr-defined]
    gone = weakref.ref(held)
    del held
    gc.collect()
    assert gone() is None


def test_under_a_tracer() -> None:
    events: list[str] = []

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        events.append(frame.f_code.co_name)
        return tracer

    compiler, _ = compiling((start, goes_on))
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        result = compiler.call(start, (1,), None)
    finally:
        sys.settrace(before)
    assert result == ("as it is", 1, 2)
    assert "goes_on" in events and "resume" in events and "start" not in events
