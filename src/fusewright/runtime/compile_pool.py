"""Worker processes that compile kernels (`triton_worker`): as many as there is work for, within a
bound. One that has ended is replaced; a kernel at which two end cannot be compiled.
"""

from __future__ import annotations

import atexit
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Final

from fusewright.errors import FusewrightError
from fusewright.runtime import cubins
from fusewright.runtime.cubins import CompileRequest
from fusewright.runtime.folders import generated_folder
from fusewright.runtime.gpu_code import Cubin

WORKERS: Final = 8
"""Most processes at a time."""

TRIES: Final = 2
"""How many processes may end at one kernel."""

PATIENCE: Final = 5.0
"""Seconds that a process has to end in: its output closes before that."""


class CompilationFailed(FusewrightError):
    """A kernel cannot be compiled; says why."""


class _Ended(Exception):
    """A process has ended, or its answer is none."""


class _Worker:
    """One process."""

    def __init__(self) -> None:
        # It finds what this process does, and compiles also where this one interprets.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        environment = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fusewright.runtime.triton_worker", str(generated_folder())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def compile(self, request: CompileRequest) -> Cubin:
        """Have a kernel compiled. CompilationFailed: it cannot be."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(request.to_json().encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise _Ended from error
        kind, _, count = self.process.stdout.readline().strip().partition(b" ")
        if not count.isdigit():
            raise _Ended
        data = self.process.stdout.read(int(count))
        if kind == b"e":
            raise CompilationFailed(data.decode())
        cubin = Cubin.from_bytes(data)
        if cubin is None:
            raise _Ended
        return cubin

    def end(self, patience: float = 0.0) -> str:
        """End the process; how it ended, if it does by itself within so many seconds."""
        try:
            ended = f"ended with {self.process.wait(patience)}"
        except subprocess.TimeoutExpired:
            ended = "was damaged"
        self.process.kill()
        self.process.communicate()
        return ended


_IDLE: Final[queue.LifoQueue[_Worker]] = queue.LifoQueue()
_COUNT: Final = max(1, min(WORKERS, os.cpu_count() or 1))
_ROOM: Final = threading.BoundedSemaphore(_COUNT)


def compile_one(request: CompileRequest) -> Cubin:
    """Compile a kernel in a worker, once one is free. CompilationFailed: it cannot be."""
    ended = ""
    with _ROOM:
        for _ in range(TRIES):
            try:
                worker = _take()
            except OSError as error:
                raise CompilationFailed(f"no process can be started for it: {error}") from error
            try:
                cubin = worker.compile(request)
            except CompilationFailed:
                _IDLE.put(worker)
                raise
            except _Ended:
                ended = worker.end(PATIENCE)
            except BaseException:  # An interrupt: its answer may come yet, and is nobody's.
                worker.end()
                raise
            else:
                _IDLE.put(worker)
                return cubin
    raise CompilationFailed(f"the process that compiles it {ended}, {TRIES} times")


def begin_if_cold() -> None:
    """Start the workers ahead, where no machine code is kept yet: they take a while to begin."""
    if cubins.FILES.folder().exists() or not _IDLE.empty():
        return
    with suppress(OSError):  # Whoever needs one is told.
        for _ in range(_COUNT):
            _IDLE.put(_Worker())


def _take() -> _Worker:
    """A worker that waits, or a new one."""
    while True:
        try:
            worker = _IDLE.get_nowait()
        except queue.Empty:
            return _Worker()
        if worker.process.poll() is None:
            return worker
        worker.end()


@atexit.register
def _end_all() -> None:
    while not _IDLE.empty():
        _IDLE.get_nowait().end()
