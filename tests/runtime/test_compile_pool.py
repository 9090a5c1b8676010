"""Processes that compile kernels: for an H100, which need not be there."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusewright.records import replace
from fusewright.runtime import compile_pool, cubins
from fusewright.runtime.compile_pool import CompilationFailed
from fusewright.runtime.cubins import CompileRequest
from fusewright.runtime.spills import spilled_bytes

SOURCE = """
import triton
import triton.language as tl

from fusewright.runtime import triton_functions as functions


@triton.jit
def kernel(in0, out0, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(out0 + x, functions.divide(tl.load(in0 + x), 3.0))
"""
REQUEST = CompileRequest(
    name="triton_third",
    source=SOURCE,
    signature={"in0": "*fp32", "out0": "*fp32", "XBLOCK": "constexpr"},
    blocks={"XBLOCK": 256},
    architecture=90,
    warps=2,
    debug=False,
    aligned=2,
)


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[queue.LifoQueue]:
    """The workers that wait: none to begin with, and they end with the test."""
    waiting: queue.LifoQueue = queue.LifoQueue()
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(compile_pool, "_IDLE", waiting)
    yield waiting
    while not waiting.empty():
        waiting.get().end()


def test_kernels_are_compiled_by_one_process_after_the_other(idle: queue.LifoQueue) -> None:
    first = compile_pool.compile_one(REQUEST)
    assert first.code.startswith(b"\x7fELF")
    assert (first.function, first.warps, first.scratch_bytes) == ("triton_third", 2, 0)
    assert first.parameters >= 2
    (worker,) = idle.queue
    other = compile_pool.compile_one(replace(REQUEST, name="again", warps=4))
    assert (other.function, other.warps) == ("again", 4)
    assert list(idle.queue) == [worker]

    with pytest.raises(CompilationFailed, match=r"(?s)CompilationError.*nothing"):
        compile_pool.compile_one(
            replace(REQUEST, source=SOURCE.replace("functions.divide", "functions.nothing"))
        )
    assert list(idle.queue) == [worker]

    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    assert compile_pool.compile_one(REQUEST) == first
    assert worker not in idle.queue


SHARES = """
import triton
import triton.language as tl


@triton.jit
def kernel(in0, out0, XBLOCK: tl.constexpr):
    x = tl.arange(0, XBLOCK)
    t0 = tl.load(in0 + x)
    tl.store(out0 + x, t0 / tl.sum(t0, 0))
"""


def test_threads_have_no_more_elements_than_registers() -> None:
    """256 elements are held until their sum is known, for which a thread has too few registers:
    each of two has half of them.
    """
    request = replace(REQUEST, source=SHARES, blocks={"XBLOCK": 1 << 13}, warps=1)
    cubin = compile_pool.compile_one(request)
    assert cubin.warps == 2
    assert spilled_bytes(cubin.code, "") == 0


POPEN = subprocess.Popen


def fake_worker(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let workers run a program of Python's."""

    def start(command: list[str], **options: object) -> object:
        return POPEN([sys.executable, "-c", program], **options)

    monkeypatch.setattr(compile_pool.subprocess, "Popen", start)


@pytest.mark.parametrize("architecture", [80, 90])
def test_no_c_compiler_is_needed(
    idle: queue.LifoQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: int
) -> None:
    """Not to make machine code, for an A100 or an H100; launches go through the driver."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert shutil.which("cc") is None and shutil.which("gcc") is None
    cubin = compile_pool.compile_one(replace(REQUEST, architecture=architecture))
    assert cubin.code.startswith(b"\x7fELF")


def test_a_process_that_ends_at_a_kernel_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, idle: queue.LifoQueue
) -> None:
    """Once: at the second time it is the kernel. A process closes its output before it ends."""
    cubin = cubins.Cubin(
        code=b"code", function="f", warps=1, shared_bytes=0, parameters=2, scratch_bytes=0
    )
    data = cubin.to_bytes()
    mark = tmp_path / "began"
    answer = f"sys.stdout.buffer.write({b'c %d' % len(data) + bytes([10]) + data!r})"
    dies = "os.kill(os.getpid(), 11)"
    fake_worker(
        monkeypatch,
        f"import os, sys; sys.stdin.readline(); new = not os.path.exists({str(mark)!r})\n"
        f"open({str(mark)!r}, 'w')\n{dies} if new else {answer}",
    )
    assert compile_pool.compile_one(REQUEST) == cubin
    fake_worker(
        monkeypatch,
        f"import os, sys, time; sys.stdin.readline(); os.close(1); time.sleep(0.3); {dies}",
    )
    while not idle.empty():
        idle.get().end()
    with pytest.raises(CompilationFailed, match="process that compiles it ended with -11, 2 times"):
        compile_pool.compile_one(REQUEST)
    assert idle.empty()


def test_a_process_that_answers_something_else_is_replaced(
    monkeypatch: pytest.MonkeyPatch, idle: queue.LifoQueue
) -> None:
    fake_worker(monkeypatch, "input(); print('c is for code')")
    with pytest.raises(CompilationFailed, match="process that compiles it ended with 0, 2 times"):
        compile_pool.compile_one(REQUEST)
    assert idle.empty()


def test_where_no_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch, idle: queue.LifoQueue
) -> None:
    def start(*_: object, **options: object) -> object:
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(compile_pool.subprocess, "Popen", start)
    compile_pool.begin_if_cold()
    with pytest.raises(CompilationFailed, match=r"no process can be started.*too many"):
        compile_pool.compile_one(REQUEST)
    assert idle.empty()


def test_no_more_processes_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_pool, "_ROOM", threading.BoundedSemaphore(1))
    cubin = cubins.Cubin(
        code=b"", function="f", warps=1, shared_bytes=0, parameters=2, scratch_bytes=0
    )
    data = b"c %d\n" % len(cubin.to_bytes()) + cubin.to_bytes()
    fake_worker(
        monkeypatch,
        f"import sys\nfor line in sys.stdin: sys.stdout.buffer.write({data!r}); sys.stdout.flush()",
    )
    threads = [threading.Thread(target=compile_pool.compile_one, args=(REQUEST,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compile_pool._IDLE.queue) == 1


def test_workers_begin_ahead_where_nothing_is_on_disk(
    monkeypatch: pytest.MonkeyPatch, idle: queue.LifoQueue
) -> None:
    fake_worker(monkeypatch, "input()")
    monkeypatch.setattr(compile_pool, "_COUNT", 2)
    for _ in range(2):
        compile_pool.begin_if_cold()
        assert idle.qsize() == 2
    while not idle.empty():
        idle.get().end()
    cubins.FILES.folder().mkdir()
    compile_pool.begin_if_cold()
    assert idle.empty()


def test_workers_import_triton_and_little_of_ours() -> None:
    program = (
        "import sys, fusewright.runtime.triton_worker\n"
        "print(*sorted(name for name in sys.modules if name.startswith('fusewright')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        "fusewright",
        "fusewright.records",
        "fusewright.runtime",
        "fusewright.runtime.cubins",
        "fusewright.runtime.folders",
        "fusewright.runtime.gpu_code",
        "fusewright.runtime.kept_files",
        "fusewright.runtime.multiprocessors",
        "fusewright.runtime.spills",
        "fusewright.runtime.triton_compiler",
        "fusewright.runtime.triton_worker",
    ]
