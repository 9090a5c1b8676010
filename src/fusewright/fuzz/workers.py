"""Processes that check programs, so that one which crashes or hangs ends a process and no more.

A worker on the CPU is forked from this process, which has imported and warmed everything, and so
begins at once; it takes programs through a pipe, one after the other, and answers with verdicts.
The parent must not compute gradients itself: torch's autograd refuses to work in the children of a
process that has. One on a GPU is a new Python (`on_gpu`): CUDA works in no child of a process that
has so much as asked its driver a question, which torch does in many places.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import re
import resource
import select
import selectors
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch

from fusewright.api import compile
from fusewright.fuzz.checking import ON_CPU, CheckResult, Way, check
from fusewright.fuzz.comparison import Finding
from fusewright.fuzz.program import RandomProgram
from fusewright.records import record, replace

TIME_LIMIT: Final = 30.0
"""Seconds after which a program hangs."""

GPU_TIME_LIMIT: Final = 120.0
"""Seconds for a program on a GPU, where compiling a kernel takes most of one."""

LIFETIME: Final = 150
"""Programs that one process checks; then another takes over, with memory of its own."""


@record
class Task:
    """A program to check: a seed of a kind, or a text."""

    kind: str
    seed: int
    source: str = ""


Generate = Callable[[str, int], RandomProgram]

_PARENTS_ENDS: Final[set[int]] = set()
"""File descriptors of this process that no child may keep open."""


def warm_up() -> None:
    """Import and initialise what the first compile needs, short of gradients."""
    torch.set_num_threads(1)
    values = torch.ones(3, 5, requires_grad=True)
    compile(lambda x: (x.sin() @ x.mT).sum(-1))(values)


class Worker:
    """One process, and the task that it has."""

    def __init__(self, generate: Generate, way: Way) -> None:
        self.limit = TIME_LIMIT if way.device == "cpu" else GPU_TIME_LIMIT
        requests, self._send = os.pipe()
        self.answers, answer = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the worker
        _PARENTS_ENDS.update((self._send, self.answers))
        sys.stdout.flush()
        sys.stderr.flush()
        if way.device == "cpu":
            self.process = os.fork()
            if not self.process:
                for descriptor in _PARENTS_ENDS:
                    os.close(descriptor)
                os.dup2(self._errors.fileno(), 2)
                serve(requests, answer, generate, way)
        else:
            self.process = started(requests, answer, self._errors.fileno(), way)
        os.close(requests)
        os.close(answer)
        self.task: Task | None = None
        self.compiling = False
        self.since = 0.0
        self.done = 0
        self._unread = b""

    def give(self, task: Task) -> None:
        """Begin a task."""
        self.task, self.compiling, self.since = task, False, time.monotonic()
        text = json.dumps([task.kind, task.seed, task.source])
        with contextlib.suppress(BrokenPipeError):  # Then it has crashed, which `read` tells.
            os.write(self._send, f"{text}\n".encode())

    def read(self) -> Iterator[CheckResult]:
        """The verdict, where there is one by now."""
        data = os.read(self.answers, 1 << 16)
        if not data:
            yield self._ended()
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            if answer is None:
                self.compiling = True
            else:
                is_last = answer.pop("last", False)
                self.done, self.task = LIFETIME if is_last else self.done + 1, None
                yield verdict_from(answer)

    def _ended(self) -> CheckResult:
        _, status = os.waitpid(self.process, 0)
        self.process = 0
        number = os.waitstatus_to_exitcode(status)
        what = signal.Signals(-number).name if number < 0 else f"exit status {number}"
        return self._failure("crash", f"{what} {self._last_words()}")

    def _last_words(self) -> str:
        """The end of what the process wrote to stderr: what glibc says, and where it was."""
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        words = [line for line in text.splitlines() if re.match(r"[a-z_]+\(\): |.*corrupt", line)]
        frames = re.findall(r'File "(?:.*/)?([^/"]+)", line (\d+) in (\w+)', text)[:3]
        return " ".join([*words[-1:], *(f"{file}:{line} {name}" for file, line, name in frames)])

    def hangs(self) -> CheckResult | None:
        """The verdict on a task that takes too long; the process is ended then."""
        if self.task is None or time.monotonic() - self.since < self.limit:
            return None
        if select.select([self.answers], [], [], 0)[0]:  # It has answered by now.
            return None
        self.end()
        return self._failure("hang", f"no answer in {self.limit:.0f} s {self._last_words()}")

    def _failure(self, kind: str, detail: str) -> CheckResult:
        task, self.task = self.task, None
        assert task is not None, detail
        seconds = time.monotonic() - self.since
        if not self.compiling:
            return CheckResult(task.kind, task.seed, "discarded", seconds=seconds)
        name = re.sub(r"\d+", "#", f"{kind}: {detail}")
        finding = Finding(kind, 0, "process", detail)
        return CheckResult(task.kind, task.seed, "found", (finding,), name, seconds)

    def end(self) -> None:
        """End the process, whatever it does."""
        if self.process:
            os.kill(self.process, signal.SIGABRT if self.task else signal.SIGKILL)
            os.waitpid(self.process, 0)
        self.process = 0

    def close(self) -> None:
        """Give everything back."""
        self.end()
        for descriptor in (self._send, self.answers):
            _PARENTS_ENDS.discard(descriptor)
            os.close(descriptor)
        self._errors.close()


def started(requests: int, answer: int, errors: int, way: Way) -> int:
    """A new Python that serves programs on a GPU; only these descriptors are open there."""
    for descriptor in (requests, answer):
        os.set_inheritable(descriptor, True)
    command = [sys.executable, "-m", "fusewright.fuzz.on_gpu", str(requests), str(answer)]
    command += [way.device, str(way.dynamic)]
    actions = [(os.POSIX_SPAWN_DUP2, errors, 2)]
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)


def serve(requests: int, answer: int, generate: Generate, way: Way) -> None:
    """The life of a child: it never returns."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    gc.freeze()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)

    def tell(value: Any) -> None:
        os.write(answer, f"{json.dumps(value)}\n".encode())

    for line in os.fdopen(requests):
        kind, seed, source = json.loads(line)
        try:
            program = RandomProgram(kind, seed, source) if source else generate(kind, seed)
            verdict = check(program, None, lambda: tell(None), way)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            verdict = CheckResult(kind, seed, "discarded", (Finding("crash", 0, "fuzzer", detail),))
        gc.collect()  # What a program has left behind is freed: broken memory shows.
        tell(verdict_to(verdict) | {"last": not _works(way.device)})
    os._exit(0)


def _works(device: str) -> bool:
    """Whether a device goes on: after a failed assertion a process can use a GPU no more."""
    try:
        torch.empty(1, device=device).zero_().item()
    except RuntimeError:
        return False
    return True


class Pool:
    """Workers that check tasks, so many at once."""

    def __init__(self, size: int, generate: Generate, way: Way = ON_CPU) -> None:
        self._size = size
        self._generate = generate
        self._way = way
        self._idle: deque[Worker] = deque()

    def _new_worker(self) -> Worker:
        return Worker(self._generate, self._way)

    def check(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[CheckResult]:
        """The verdicts as they come, until `stop`; `tasks` is asked as workers are free."""
        busy: dict[int, Worker] = {}
        source = iter(tasks)
        selector = selectors.DefaultSelector()
        exhausted = False
        try:
            while True:
                while len(busy) < self._size and not exhausted and not stop():
                    task = next(source, None)
                    if task is None:
                        exhausted = True
                        break
                    worker = self._idle.popleft() if self._idle else self._new_worker()
                    worker.give(task)
                    busy[worker.answers] = worker
                    selector.register(worker.answers, selectors.EVENT_READ)
                if not busy or stop():
                    return
                ready = {key.fd for key, _ in selector.select(timeout=0.5)}
                for descriptor, worker in list(busy.items()):
                    verdicts = list(worker.read()) if descriptor in ready else []
                    if not verdicts and (hanging := worker.hangs()) is not None:
                        verdicts = [hanging]
                    if worker.task is None:
                        del busy[descriptor]
                        selector.unregister(descriptor)
                        self._release(worker)
                    yield from verdicts
        finally:
            selector.close()
            for worker in busy.values():
                worker.close()

    def one(self, task: Task) -> CheckResult:
        """The verdict on a single task."""
        return next(self.check([task], lambda: False))

    def _release(self, worker: Worker) -> None:
        if worker.process and worker.done < LIFETIME:
            self._idle.append(worker)
        else:
            worker.close()

    def close(self) -> None:
        """End all workers."""
        while self._idle:
            self._idle.pop().close()


def verdict_to(verdict: CheckResult) -> dict[str, Any]:
    """A verdict as JSON has it."""
    findings = [
        [finding.kind, finding.call, finding.path, finding.detail[:600]]
        for finding in verdict.findings[:20]
    ]
    return {
        "kind": verdict.kind,
        "seed": verdict.seed,
        "outcome": verdict.outcome,
        "findings": findings,
        "signature": verdict.signature,
        "seconds": round(verdict.seconds, 4),
    }


def verdict_from(fields: dict[str, Any]) -> CheckResult:
    """The verdict that JSON tells."""
    findings = tuple(Finding(*row) for row in fields.pop("findings", ()))
    return replace(CheckResult(**fields), findings=findings)
