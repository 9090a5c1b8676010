"""What a long compile says on a terminal, and that Ctrl-C leaves everything as it was."""

from __future__ import annotations

import gc
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright import compiler, context
from fusewright.interrupts import INTERRUPTS, Interrupts
from fusewright.modes import Modes
from fusewright.progress import DOING, Doing

MODEL = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))


def step(x: Any) -> Any:
    with torch.no_grad():
        z = x * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = MODEL(x + z)
    print(end="")
    return torch.softmax(y.float(), -1).sum() + sum(value.sum() for value in [z, x])


@pytest.fixture
def usable() -> Iterator[Callable[[Any], None]]:
    """Whether the interpreter can be used after an interrupted call of a compiled function."""
    x = torch.randn(4, 8)
    expected = step(x)
    before, handler = Modes.now(), signal.getsignal(signal.SIGINT)
    out, err = sys.stdout, sys.stderr

    def check(compiled: Any) -> None:
        assert gc.isenabled() and context.COLLECTOR_PAUSE._users == 0
        assert Modes.now() == before
        assert not getattr(compiler._THREAD, "is_compiling", False)
        assert not compiled.compiler._lock.locked()
        assert signal.getsignal(signal.SIGINT) is handler and not INTERRUPTS.is_pending
        assert (sys.stdout, sys.stderr) == (out, err) and DOING._users == 0
        torch.testing.assert_close(step(x), expected)
        compiled(x).backward()
        torch.testing.assert_close(compiled(x), expected, rtol=1e-3, atol=1e-3)
        assert compiled.compiler.compilations

    yield check
    signal.signal(signal.SIGINT, handler)


@pytest.mark.dynamic(None)
def test_an_interrupt_at_every_place_where_one_is_raised(
    usable: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Polled(Interrupts):
        """Waits from the poll of a number on."""

        polls = 0
        chosen = -1

        @property
        def is_pending(self) -> bool:
            if self._handler is None:
                return False
            self.polls += 1
            return self.polls == self.chosen

        @is_pending.setter
        def is_pending(self, value: bool) -> None:
            pass

    monkeypatch.setattr(INTERRUPTS, "__class__", Polled)
    monkeypatch.delitem(INTERRUPTS.__dict__, "is_pending")
    x = torch.randn(4, 8)
    INTERRUPTS.polls, INTERRUPTS.chosen = 0, -1
    fusewright.compile(step)(x).backward()
    count = INTERRUPTS.polls
    assert count > 40
    try:
        for chosen in range(1, count, 5):
            compiled = fusewright.compile(step)
            INTERRUPTS.polls, INTERRUPTS.chosen = 0, chosen
            with pytest.raises(KeyboardInterrupt):
                compiled(x).backward()
            INTERRUPTS.chosen = -1
            usable(compiled)
    finally:
        monkeypatch.undo()
        INTERRUPTS.is_pending = False


@pytest.mark.thorough
def test_an_interrupt_at_any_moment(usable: Callable[[Any], None]) -> None:
    x = torch.randn(4, 8)
    began = time.perf_counter()
    fusewright.compile(step)(x).backward()
    whole = time.perf_counter() - began
    main = threading.main_thread().ident
    for number in range(60):
        compiled = fusewright.compile(step)
        timer = threading.Timer(
            whole * number / 60, lambda: signal.pthread_kill(main, signal.SIGINT)
        )
        try:
            timer.start()
            compiled(x).backward()
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            pass
        usable(compiled)


def test_a_second_interrupt_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), INTERRUPTS.held():
        signal.raise_signal(signal.SIGINT)
        assert INTERRUPTS.is_pending
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it waits")
    assert not INTERRUPTS.is_pending


def test_an_interrupt_waits_for_the_end() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), INTERRUPTS.held():
        signal.raise_signal(signal.SIGINT)
        with INTERRUPTS.held():
            steps.append("inside")
        steps.append("behind")
    assert steps == ["inside", "behind"]


def test_the_programs_own_handler_is_called() -> None:
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with INTERRUPTS.held():
            signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with INTERRUPTS.held():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_hold_nothing() -> None:
    handlers = []

    def work() -> None:
        with INTERRUPTS.held():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


def test_the_line() -> None:
    doing = Doing()
    doing.what, doing.step, doing.began = "f  model.py:12", "schedule", time.monotonic() - 1.4
    assert "compiling f  model.py:12   schedule   1." in doing.__rich__().plain
    doing.done, doing.all = 2, 7
    assert "schedule, 2 of 7 kernels" in doing.__rich__().plain


def test_a_short_compile_starts_nothing_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("TERM", raising=False)
    before = sys.stdout
    fusewright.compile(torch.sin)(torch.ones(3))
    assert sys.stdout is before and DOING._thread is None
    assert not any(one.name == "fusewright-progress" for one in threading.enumerate())


PROGRAM = """\
import sys, time
import torch, fusewright
from fusewright.lower.rules import RULES

real = fusewright.lookup_backend("fusewright") and RULES["aten.exp.default"]

def slow(*given, **named):
    for _ in range(25):
        time.sleep(0.1)
        if INTERRUPTS.is_pending:
            INTERRUPTS.deliver()
    return real(*given, **named)

from fusewright.interrupts import INTERRUPTS
RULES["aten.exp.default"] = slow

def program(x):
    return torch.exp(x) + 1

print("begin", flush=True)
compiled = fusewright.compile(program)
try:
    compiled(torch.ones(3))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    RULES["aten.exp.default"] = real
assert torch.allclose(compiled(torch.ones(3)), program(torch.ones(3)))
print("end", sys.stderr.isatty(), flush=True)
"""


def on_a_terminal(program: Path, interrupt_at: str = "") -> str:
    """What is written to a terminal; Ctrl-C is pressed when a text is seen."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm-256color"
        os.environ["COLUMNS"] = "100"
        os.execv(sys.executable, [sys.executable, str(program)])
    seen = b""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # the program ended
                break
            if not part:
                break
            seen += part
            if interrupt_at and interrupt_at.encode() in seen:
                os.write(terminal, b"\x03")
                interrupt_at = ""
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert status == 0, seen.decode()
    return seen.decode()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


@pytest.mark.thorough
def test_a_terminal_shows_one_line_that_goes_away(program: Path) -> None:
    pytest.importorskip("rich")
    text = on_a_terminal(program)
    assert "compiling program  program.py:17   lower" in text
    before, after = text.split("begin")[0], text.rsplit("compiling", 1)[1]
    assert "compiling" not in before
    assert "\x1b[2K" in after and "end True" in after, "the line is taken away"


@pytest.mark.thorough
def test_control_c_on_a_terminal(program: Path) -> None:
    pytest.importorskip("rich")
    text = on_a_terminal(program, interrupt_at="compiling program")
    assert "interrupted" in text and "end True" in text


@pytest.mark.thorough
def test_a_pipe_gets_nothing(program: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "begin\nend False\n"
    assert not re.search("compiling", done.stderr)
