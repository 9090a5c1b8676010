"""The frame hook beside other evaluators, tracers, profilers, debuggers, signals, forks, threads;
at the end of the process too. Without torch.

`tests/native/test_other_pythons.py` runs this file under each CPython that is supported.
"""

from __future__ import annotations

import bdb
import cProfile
import importlib.util
import os
import pstats
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.native.extension import extension

now: Any = SimpleNamespace()
"""What compiled functions of the test that runs need: they have the free variables of the original,
none."""

Continuation, Entry = extension.Continuation, extension.Entry
FrameCompiler, GuardProgram = extension.FrameCompiler, extension.GuardProgram


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert not extension.is_installed()


def original(x: Any) -> Any:
    return ("original", x)


def compiled(x: Any) -> Any:
    return ("compiled", x)


def caller(x: Any) -> Any:
    return original(x), original(x)


def replacing(module: Any = extension, **replacements: Callable[..., Any]) -> Any:
    """A frame compiler of `module` that replaces functions by name, and what they call as well."""

    def callback(frame: Any) -> Any:
        made = replacements.get(frame.code.co_name)
        return module.Entry(made, None, continues=True) if made else None

    return module.FrameCompiler(callback)


# -- other evaluators ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A second frame hook: the same extension from another file, with nothing in common."""
    path = Path(extension.__spec__.origin)
    copy = tmp_path_factory.mktemp("other") / path.name
    shutil.copy(path, copy)
    specification = importlib.util.spec_from_file_location("other._extension", copy)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert module.FrameCompiler is not FrameCompiler
    return module


def test_ours_inside_another(other: Any) -> None:
    now.inner = replacing(original=compiled)
    theirs = replacing(other, caller=calls_inner)
    for _ in range(3):
        assert theirs.call(caller, (1,), None) == (("compiled", 1), ("original", 1))
        assert not other.is_installed() and not extension.is_installed()


def test_another_inside_ours(other: Any) -> None:
    now.inner = replacing(other, original=lambda x: ("theirs", x))
    ours = replacing(caller=calls_inner)
    for _ in range(3):
        assert ours.call(caller, (1,), None) == (("theirs", 1), ("original", 1))
        assert not other.is_installed() and not extension.is_installed()


def calls_inner(x: Any) -> Any:
    return now.inner.call(original, (x,), None), original(x)


def test_both_look_at_the_same_frames(other: Any) -> None:
    """The one installed last sees a frame first; what it leaves alone reaches the other."""
    now.inner = replacing(other, original=lambda x: ("theirs", x))
    ours = replacing(also=lambda x: ("ours", x), original=compiled)
    for _ in range(3):
        assert ours.call(calls_all, (1,), None) == (("theirs", 1), ("ours", 1), ("compiled", 1))
        assert not other.is_installed() and not extension.is_installed()


def calls_all(x: Any) -> Any:
    return now.inner.call(original, (x,), None), now.inner.call(calls_also, (x,), None), original(x)


def calls_also(x: Any) -> Any:
    return also(x)


def also(x: Any) -> Any:
    return ("original", x)


def test_hooks_of_two_threads_come_and_go_in_any_order(other: Any) -> None:
    ours, theirs = replacing(original=compiled), replacing(other, original=lambda x: ("theirs", x))
    failures: list[Any] = []

    def work(compiler: Any, expected: str) -> None:
        for number in range(500):
            result = compiler.call(original, (number,), None)
            if result not in ((expected, number), ("original", number)):
                failures.append(result)

    threads = [
        threading.Thread(target=work, args=pair)
        for pair in ((ours, "compiled"), (theirs, "theirs")) * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert ours.call(original, (1,), None) == ("compiled", 1)
    assert theirs.call(original, (1,), None) == ("theirs", 1)


# -- tracers, profilers, debuggers ---------------------------------------------------------------


def test_a_profiler_sees_compiled_code() -> None:
    compiler = replacing(original=compiled)
    profile = cProfile.Profile()
    assert profile.runcall(compiler.call, original, (1,), None) == ("compiled", 1)
    assert profile.runcall(compiler.call, original, (1,), None) == ("compiled", 1)
    names = {name for _, _, name in pstats.Stats(profile).stats}  # type: ignore[attr-defined]
    assert "compiled" in names and "original" not in names


class Steps(bdb.Bdb):
    """A debugger that stops at every line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, int]] = []

    def user_line(self, frame: Any) -> None:
        first = frame.f_code.co_firstlineno
        self.lines.append((frame.f_code.co_name, frame.f_lineno - first))
        self.set_step()


def test_a_debugger_steps_through_compiled_code() -> None:
    compiler = replacing(caller=caller_compiled, original=compiled)
    before = sys.gettrace()
    debugger = Steps()
    try:
        result = debugger.runcall(compiler.call, caller, (1,), None)
    finally:
        sys.settrace(before)
    assert result == "goes on"
    assert ("caller_compiled", 1) in debugger.lines and ("compiled", 1) in debugger.lines
    assert ("caller_compiled", 2) in debugger.lines


def caller_compiled(x: Any) -> Any:
    original(x)
    return "goes on"


# -- signals, forks, the end ---------------------------------------------------------------------


def test_an_interrupt_while_compiling() -> None:
    interrupts = [True]

    def callback(frame: Any) -> Any:
        if interrupts.pop():
            signal.raise_signal(signal.SIGINT)
        return Entry(compiled, None)

    compiler = FrameCompiler(callback)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            compiler.call(original, (1,), None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert compiler.entries(original.__code__) == ()
    interrupts.append(False)
    assert compiler.call(original, (1,), None) == ("compiled", 1)


def test_an_interrupt_in_an_endless_chain_of_continuations() -> None:
    def endless(x: Any) -> Any:
        return Continuation(endless, (x,))

    def handler(number: int, frame: Any) -> None:
        raise TimeoutError

    compiler = replacing(original=lambda x: Continuation(x, (x,)))
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(TimeoutError):
            compiler.call(original, (endless,), None)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_forked_process_runs_and_compiles() -> None:
    compiler = replacing(original=compiled, caller=lambda x: original(x))
    assert compiler.call(original, (1,), None) == ("compiled", 1)
    child = os.fork()
    if child == 0:
        fine = compiler.call(original, (2,), None) == ("compiled", 2)
        fine = fine and compiler.call(caller, (2,), None) == ("compiled", 2)
        os._exit(0 if fine else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert compiler.call(caller, (1,), None) == ("compiled", 1)


def test_a_process_forked_inside_compiled_code_goes_on() -> None:
    compiler = replacing(caller=forks, original=compiled)
    status = compiler.call(caller, (1,), None)
    assert os.waitstatus_to_exitcode(status) == 0


def forks(x: Any) -> int:
    child = os.fork()
    if child == 0:
        os._exit(0 if original(x) == ("compiled", 1) else 1)
    return os.waitpid(child, 0)[1]


SHUTDOWN = """
import atexit, sys, threading, time
from tests.native.extension import extension

def original(x):
    return x

class AtTheEnd:
    def __del__(self):
        compiler.call(original, (1,), None)

def at_exit():
    assert compiler.call(original, (1,), None) == "compiled"

def forever(x):
    while True:
        original(x)

compiler = extension.FrameCompiler(
    lambda frame: extension.Entry(lambda x: "compiled", None) if frame.code is original.__code__
    else None)
assert compiler.call(original, (1,), None) == "compiled"
atexit.register(at_exit)
kept = AtTheEnd()
sys.modules["kept in a cycle"] = [compiler, kept, sys.modules]
threading.Thread(target=compiler.call, args=(forever, (1,), None), daemon=True).start()
time.sleep(0.05)
print("done")
"""


def test_the_process_ends_with_compiled_functions_alive() -> None:
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SHUTDOWN],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    assert "Fatal" not in result.stderr and "AssertionError" not in result.stderr, result.stderr


# -- threads and leaks ---------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["the same function", "their own"])
def test_threads_compile_and_call_at_once(shared: bool) -> None:
    def by_type(frame: Any) -> Any:
        kind = type(frame.locals["x"])
        guards = GuardProgram(("x",), ((0, ("local", "x"), (("type", kind),)),))
        namespace: dict[str, Any] = {}
        exec(f"def made(x): return {kind.__name__!r}", namespace)
        return Entry(namespace["made"], guards)

    def work(index: int) -> None:
        namespace: dict[str, Any] = {}
        exec("def own(x): return 'original'", namespace)
        function = original if shared else namespace["own"]
        barrier.wait()
        for number in range(400):
            argument = (1, "a", 1.5, None)[(number + index) % 4]
            result = compiler.call(function, (argument,), None)
            if result != type(argument).__name__:
                failures.append(result)

    failures: list[Any] = []
    barrier = threading.Barrier(8)
    compiler = FrameCompiler(by_type, 64)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert not failures


def test_one_thread_resets_while_others_call() -> None:
    compiler = replacing(original=lambda x: Continuation(original_resumed, (x,)))
    stop = threading.Event()
    failures: list[Any] = []

    def work() -> None:
        for number in range(2000):
            result = compiler.call(original, (number,), None)
            if result != ("resumed", number):
                failures.append(result)

    def reset() -> None:
        while not stop.is_set():
            compiler.reset()

    resetting = threading.Thread(target=reset)
    workers = [threading.Thread(target=work) for _ in range(3)]
    for thread in (resetting, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    stop.set()
    resetting.join()
    assert not failures


def original_resumed(x: Any) -> Any:
    return ("resumed", x)


def test_guards_that_held_keep_nothing_alive() -> None:
    class Model:
        def __init__(self) -> None:
            self.items = {"a": Held()}

    class Held:
        pass

    nodes = (
        (0, ("local", "x"), (("type", Model),)),
        (1, ("instance_dict",), (("lacks", "other"),)),
        (2, ("dict_item", "items"), (("type", dict), ("length", 1))),
        (3, ("dict_item", "a"), (("type", Held),)),
    )
    program = GuardProgram(("x",), nodes)
    compiler = FrameCompiler(lambda frame: Entry(compiled, program))
    model = Model()
    for _ in range(5):
        assert compiler.call(original, (model,), None) == ("compiled", model)
    gone = weakref.ref(model), weakref.ref(model.items["a"])
    del model
    assert [reference() for reference in gone] == [None, None]
