"""Entries of code that many objects share: limits, look-up and lifetimes by object. Without torch.

`tests/native/test_other_pythons.py` runs this file under each CPython that is supported.
"""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from tests.native.extension import extension

Continuation, Entry = extension.Continuation, extension.Entry
Frame, FrameCompiler = extension.Frame, extension.FrameCompiler
GuardProgram = extension.GuardProgram

asked: list[Any] = []
"""The kinds that guards read, in order."""


class Shared:
    """An object whose method is compiled for what it is. Nobody may compare it or ask its hash."""

    def __init__(self, kind: Any) -> None:
        self.own_kind = kind

    @property
    def kind(self) -> Any:
        asked.append(self.own_kind)
        return self.own_kind

    def method(self, x: int) -> Any:
        return "original", x

    def __eq__(self, other: object) -> bool:
        raise AssertionError("two objects were compared")

    def __hash__(self) -> int:
        raise AssertionError("an object was asked for its hash")


def guards(path: tuple[tuple[Any, ...], ...], x: Any, kind: Any) -> GuardProgram:
    """Guards of what is at the end of a path, and behind it of the argument `x`."""
    names = tuple({step[1]: None for step in (*path, ("local", "x")) if step[0] == "local"})
    nodes: list[Any] = []
    for depth, step in enumerate(path):
        tests = (("equals", kind),) if depth == len(path) - 1 else ()
        nodes.append((depth, step, tests))
    nodes.append((0, ("local", "x"), (("equals", x),)))
    return GuardProgram(names, tuple(nodes))


KIND_OF_SELF = (("local", "self"), ("attribute", "kind"))


def by_kind(frame: Frame) -> Any:
    """An entry for objects of one kind, and one number."""
    kind, x = frame.locals["self"].own_kind, frame.locals["x"]

    def compiled(self: Shared, x: int) -> Any:
        return "compiled", x

    return Entry(compiled, guards(KIND_OF_SELF, x, kind), kind)


def counting(callback: Callable[[Frame], Any]) -> tuple[Callable[[Frame], Any], list[str]]:
    """A callback, and the names of the code that it was asked about."""
    names: list[str] = []

    def counted(frame: Frame) -> Any:
        names.append(frame.code.co_name)
        return callback(frame)

    return counted, names


def kinds(compiler: FrameCompiler) -> list[Any]:
    return [entry.detail for entry in compiler.entries(Shared.method.__code__)]


def test_a_limit_is_that_of_one_object() -> None:
    limited: list[Frame] = []
    compiler = FrameCompiler(by_kind, 2, on_limit=lambda frame, _: limited.append(frame))
    objects = [Shared(kind) for kind in range(20)]
    for one in objects:
        for x in (1, 2):
            assert compiler.call(one.method, (x,), None) == ("compiled", x)
    assert limited == []
    assert compiler.call(objects[3].method, (3,), None) == ("original", 3)
    assert compiler.call(objects[3].method, (4,), None) == ("original", 4)
    assert [frame.locals["self"] is objects[3] for frame in limited] == [True]
    assert [entry.detail for entry in limited[0].entries] == [3, 3]
    assert compiler.call(objects[3].method, (2,), None) == ("compiled", 2)
    objects.append(Shared(20))
    assert compiler.call(objects[-1].method, (1,), None) == ("compiled", 1)


def test_an_object_finds_its_own_entry_first() -> None:
    compiler = FrameCompiler(by_kind)
    objects = [Shared(kind) for kind in range(50)]
    for one in objects:
        compiler.call(one.method, (1,), None)
    for one in objects * 2:
        asked.clear()
        assert compiler.call(one.method, (1,), None) == ("compiled", 1)
        assert asked == [one.own_kind], "no guard of another object's was run"


def test_entries_that_one_object_uses_in_turn() -> None:
    """As the rounds of a loop do: behind the entry that was used last comes the next."""
    compiler = FrameCompiler(by_kind, 20)
    one, other = Shared(1), Shared(2)
    for x in range(20):
        compiler.call(one.method, (x,), None)
    compiler.call(other.method, (1,), None)
    for x in range(20):
        compiler.call(one.method, (x,), None)
    for _ in range(2):
        for x in range(20):
            asked.clear()
            assert compiler.call(one.method, (x,), None) == ("compiled", x)
            assert len(asked) <= 2


def test_functions_given_to_a_method() -> None:
    def by_function(frame: Frame) -> Any:
        function = frame.locals["x"]
        return Entry(lambda self, x: ("compiled", x), guards(KIND_OF_SELF, function, 1))

    limited: list[Frame] = []
    compiler = FrameCompiler(by_function, 2, on_limit=lambda frame, _: limited.append(frame))
    one, functions = Shared(1), [closing_over(n) for n in range(10)]
    for function in functions * 2:
        assert compiler.call(one.method, (function,), None) == ("compiled", function)
    assert limited == []


def test_objects_that_are_alike_share() -> None:
    callback, calls = counting(by_kind)
    compiler = FrameCompiler(callback)
    objects = [Shared(kind) for kind in [1, 2, 3] * 20]
    for _ in range(2):
        for one in objects:
            assert compiler.call(one.method, (1,), None) == ("compiled", 1)
    assert len(calls) == 3
    asked.clear()
    compiler.call(objects[30].method, (1,), None)
    assert len(asked) == 1, "what was found among the entries of others is remembered"


def test_no_object_is_kept_alive() -> None:
    compiler = FrameCompiler(by_kind)
    objects = [Shared(kind) for kind in range(10)]
    dead = [weakref.ref(one) for one in objects]
    for one in objects * 2:
        compiler.call(one.method, (1,), None)
    del objects, one
    gc.collect()
    assert [reference() for reference in dead] == [None] * 10


def test_what_dead_objects_leave_behind() -> None:
    """It serves others like them, is not counted, and is bounded."""
    limited: list[bool] = []
    callback, calls = counting(by_kind)
    compiler = FrameCompiler(callback, 3, on_limit=lambda _, every: limited.append(every))
    for kind in range(100):
        one = Shared(kind)
        for _ in range(2):
            assert compiler.call(one.method, (1,), None) == ("compiled", 1)
    del one
    assert len(calls) == 100 and limited == []
    assert kinds(compiler) == [99, 98, 97, 96], "the one of the last object was alive till now"
    assert compiler.call(Shared(97).method, (1,), None) == ("compiled", 1)
    assert len(calls) == 100


def test_entries_that_served_one_call_only_are_made_for_some_calls() -> None:
    limited: list[bool] = []
    callback, calls = counting(by_kind)
    compiler = FrameCompiler(callback, 2, on_limit=lambda _, every: limited.append(every))
    for kind in range(100):
        compiler.call(Shared(kind).method, (1,), None)
    assert limited == [False] and len(calls) < 15


def test_an_address_that_is_used_again_is_another_object() -> None:
    limited: list[Frame] = []
    compiler = FrameCompiler(by_kind, 1, on_limit=lambda frame, _: limited.append(frame))
    reused = 0
    addresses: set[int] = set()
    for turn in range(20):
        one = Shared(turn)
        reused += id(one) in addresses
        addresses.add(id(one))
        for _ in range(2):
            assert compiler.call(one.method, (1,), None) == ("compiled", 1)
        assert compiler.call(one.method, (2,), None) == ("original", 2)
        assert limited.pop().locals["self"] is one, "each object reaches a limit of its own"
        limited.clear()
        del one
    assert reused, "no address was used again"


class Slotted:
    """An object that cannot be held weakly."""

    __slots__ = ("own_kind",)

    def __init__(self, kind: Any) -> None:
        self.own_kind = kind

    @property
    def kind(self) -> Any:
        return self.own_kind

    method = Shared.method


def test_objects_that_cannot_be_held_weakly_share_one_limit() -> None:
    limited: list[Frame] = []
    compiler = FrameCompiler(by_kind, 3, on_limit=lambda frame, _: limited.append(frame))
    objects = [Slotted(kind) for kind in range(5)]
    for _ in range(2):
        found = [compiler.call(one.method, (1,), None)[0] for one in objects]
        assert found == ["compiled"] * 3 + ["original"] * 2
    assert len(limited) == 1


# -- closures and wrappers -------------------------------------------------------------------------


def by_variable(path: tuple[tuple[Any, ...], ...]) -> Callable[[Frame], Any]:
    """Makes entries for what a function closes over."""

    def callback(frame: Frame) -> Any:
        if "x" not in frame.locals or not frame.closure:
            return None
        kind = frame.closure[0].cell_contents
        kind = getattr(kind, "__name__", kind)

        def around(free: Any) -> Any:
            def compiled(x: int) -> Any:
                return "compiled", free and x

            return compiled

        return Entry(around(1), guards(path, frame.locals["x"], kind), kind)

    return callback


def closing_over(kind: Any) -> Callable[[int], Any]:
    def closure(x: int) -> Any:
        return "original", kind and x

    return closure


def test_closures_have_limits_of_their_own() -> None:
    limited: list[Frame] = []
    callback = by_variable((("cell", 0), ("cell_contents",)))
    compiler = FrameCompiler(callback, 2, on_limit=lambda frame, _: limited.append(frame))
    closures = [closing_over(f"kind {n}") for n in range(20)]
    for closure in closures * 2:
        assert compiler.call(closure, (1,), None) == ("compiled", 1)
    assert limited == []


def test_closures_made_anew_at_each_call_share_a_limit() -> None:
    limited: list[Frame] = []
    callback, calls = counting(by_variable((("cell", 0), ("cell_contents",))))
    compiler = FrameCompiler(callback, 2, on_limit=lambda frame, _: limited.append(frame))
    for n in range(100):
        compiler.call(closing_over(f"kind {n}"), (1,), None)
    assert len(limited) == 1 and len(calls) < 15
    for _ in range(3):
        assert compiler.call(closing_over("kind 1"), (1,), None)[1] == 1


def wrapped(function: Callable[[int], Any]) -> Callable[[int], Any]:
    @functools.wraps(function)
    def wrapper(x: int) -> Any:
        return "original", function and x

    return wrapper


def test_wrappers_have_limits_of_their_own() -> None:
    limited: list[Frame] = []
    path = (("cell", 0), ("cell_contents",), ("attribute", "__name__"))
    callback, calls = counting(by_variable(path))
    compiler = FrameCompiler(callback, 2, on_limit=lambda frame, _: limited.append(frame))
    wrappers = []
    for n in range(20):
        function = closing_over(n)
        function.__name__ = f"function_{n}"
        wrappers.append(wrapped(function))
    for wrapper in wrappers * 2:
        assert compiler.call(wrapper, (1,), None) == ("compiled", 1)
    assert limited == [] and len(calls) == 20


def test_what_goes_on_behind_a_break_belongs_to_the_same_object() -> None:
    """A resume function is made at each break; its first parameters are of the value stack."""
    limited: list[Frame] = []

    def begins(self: Shared, x: int) -> Any:
        return Continuation(resume_function("original"), (Shared("of this call"), self, x))

    def callback(frame: Frame) -> Any:
        if frame.code.co_name not in ("method", "rest"):
            return None
        kind, x = frame.locals["self"].own_kind, frame.locals["x"]
        if frame.code is Shared.method.__code__:
            return Entry(begins, None, continues=True)
        return Entry(resume_function("compiled"), guards(KIND_OF_SELF, x, kind), kind)

    compiler = FrameCompiler(callback, 1, on_limit=lambda frame, _: limited.append(frame))
    objects = [Shared(kind) for kind in range(6)]
    for one in objects * 2:
        assert compiler.call(one.method, (1,), None) == ("compiled", 1)
    assert limited == []
    assert compiler.call(objects[2].method, (2,), None) == ("original", 2)
    assert len(limited) == 1


def resume_function(result: str) -> Any:
    """A function as one behind a graph break; of one result always the same code."""
    if result not in RESUMES:
        namespace: dict[str, Any] = {}
        exec(f"def rest(s0, self, x): return {result!r}, x", namespace)
        RESUMES[result] = namespace["rest"].__code__.replace(co_varnames=(".s0", "self", "x"))
    return FunctionType(RESUMES[result], globals())


RESUMES: dict[str, Any] = {}


def test_threads() -> None:
    compiler = FrameCompiler(by_kind)
    objects = [Shared(kind) for kind in range(30)]
    wrong: list[Any] = []

    def work(start: int) -> None:
        for turn in range(20):
            for one in objects[start:] + [Shared(turn) for _ in range(3)]:
                if compiler.call(one.method, (1,), None) != ("compiled", 1):
                    wrong.append(one)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_guards_that_forget_all_entries() -> None:
    """What runs while an entry is looked for may take it away."""
    compiler = FrameCompiler(by_kind, 50)
    objects = [Shared(kind) for kind in range(5)]
    for one in objects:
        compiler.call(one.method, (1,), None)

    class Resetting(Shared):
        @property
        def kind(self) -> Any:
            compiler.reset()
            return self.own_kind

    mine = Resetting(2)
    for _ in range(3):
        assert compiler.call(mine.method, (1,), None) == ("compiled", 1)
        assert compiler.call(objects[1].method, (1,), None) == ("compiled", 1)


def test_reset_forgets_owners() -> None:
    compiler = FrameCompiler(by_kind, 1)
    one = Shared(1)
    for x in (1, 2):
        compiler.call(one.method, (x,), None)
    assert compiler.call(one.method, (2,), None) == ("original", 2)
    compiler.reset()
    assert compiler.call(one.method, (2,), None) == ("compiled", 2)


@pytest.mark.parametrize("count", [1, 200])
def test_nothing_leaks(count: int) -> None:
    compiler = FrameCompiler(by_kind, 2)
    objects = [Shared(kind) for kind in range(count)]
    for one in objects:
        compiler.call(one.method, (1,), None)
    entries = [weakref.ref(entry.function) for entry in compiler.entries(Shared.method.__code__)]
    assert len(entries) == count
    del compiler
    gc.collect()
    assert [reference() for reference in entries] == [None] * count
    assert all(weakref.getweakrefcount(one) == 0 for one in objects)
