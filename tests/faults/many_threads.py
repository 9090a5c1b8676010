"""Threads that compile, call, train and drop functions at once:

    python -m tests.faults.many_threads [--threads 16] [--seconds 600] [--sanitise]

Each result is compared with eager's. With `--sanitise` this runs with an extension that is built
for it, under the address and the undefined-behaviour sanitiser, whose reports end it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fusewright
from fusewright.native import _extension

ROOT = Path(__file__).parents[2]

SANITISERS = "-fsanitize=address,undefined"
ENVIRONMENT = {
    # What the interpreter and torch leave to the end of the process is no leak of ours.
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


def shared(x: Tensor, w: Tensor) -> Tensor:
    """A function that all threads call, with sizes of their own."""
    return torch.softmax(x @ w, -1) * x.shape[0]


def breaking(x: Tensor, w: Tensor) -> Tensor:
    """One with a break, and a branch on what a tensor holds."""
    y = (x @ w).relu()
    fusewright.graph_break()
    return y * 2 if y.sum() > 3 else y - 1


def raising(x: Tensor, w: Tensor) -> Tensor:
    """One whose graph raises each time, which its own handler sees."""
    try:
        return x[torch.tensor([100])] @ w
    except IndexError:
        return (x - 1) @ w


def writing(x: Tensor, w: Tensor) -> Tensor:
    """One that writes to what it was given, and draws from a generator."""
    x.add_(0.5)
    x.sub_(0.5)

    def parts() -> Iterator[Tensor]:
        for rows in x.chunk(2):
            yield rows.sum(0, keepdim=True) @ w

    return torch.cat(list(parts()))


SHARED = (shared, breaking, raising, writing)


def new_function(number: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A function that nobody has compiled."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        values = {"sum": (x * number).sin().sum(0), "rows": [row @ w for row in x.unbind()[:2]]}
        return torch.stack(values["rows"]).cumsum(0) + values["sum"].mean() / number

    return function


def step(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, w: Tensor) -> list[Tensor]:
    """A result and its gradient."""
    result = function(x, w)
    return [result.detach(), *torch.autograd.grad(result.square().sum(), w)]


class Work:
    """What the threads do until a time."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.shared: list[Any] = [fusewright.compile(function) for function in SHARED]
        self.steps = 0
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def run(self, thread: int) -> None:
        """One thread: a function of its own, then those of all."""
        number = thread * 1_000_003 + 2
        try:
            while True:
                number += 1
                own = new_function(number)
                x = torch.linspace(-1, 1, (number % 5 + 2) * 6, dtype=torch.float64).reshape(-1, 6)
                w = torch.linspace(0, 1, 24, dtype=torch.float64).reshape(6, 4).requires_grad_()
                pairs = [(own, fusewright.compile(own))]
                pairs += zip(SHARED, self.shared, strict=True)
                for function, compiled in pairs:
                    for _ in range(3):
                        torch.testing.assert_close(step(compiled, x, w), step(function, x, w))
                with self._lock:
                    self.steps += 3 * len(pairs)
                if thread == 0 and number % 7 == 0:
                    fusewright.reset()
                if time.monotonic() > self.end or self.failures:
                    return
        except Exception:
            self.failures.append(traceback.format_exc())


def sanitised(arguments: Sequence[str]) -> int:
    """Run this program with an extension that is built with sanitisers; its exit status."""
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan", "libubsan")
    ]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True)
        flags = f"{SANITISERS} -O1 -g -fno-omit-frame-pointer"
        command = [sys.executable, "setup.py", "-q", "build_ext", "--force"]
        subprocess.run(
            [*command, "--build-lib", folder, "--build-temp", f"{folder}/build"],
            env={**os.environ, "CFLAGS": flags, "LDFLAGS": SANITISERS},
            cwd=ROOT,
            check=True,
        )
        environment = {
            **os.environ,
            **ENVIRONMENT,
            "PYTHONPATH": f"{folder}:{ROOT}",
            "PYTHONMALLOC": "malloc",
            "LD_PRELOAD": " ".join(libraries),
        }
        command = [sys.executable, "-m", "tests.faults.many_threads", *arguments]
        return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def is_sanitised() -> bool:
    """Whether the extension that is loaded was built with sanitisers."""
    built = Path(_extension.__file__).read_bytes()
    return b"__asan_report_load8" in built and b"__ubsan_handle" in built


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--sanitise", action="store_true")
    options = parser.parse_args(arguments)
    if options.sanitise:
        return sanitised(["--threads", str(options.threads), "--seconds", str(options.seconds)])
    work = Work(options.seconds)
    threads = [
        threading.Thread(target=work.run, args=(number,)) for number in range(options.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kind = "with sanitisers" if is_sanitised() else "as built"
    print(f"{work.steps} steps on {len(threads)} threads, {kind}", *work.failures[:1], flush=True)
    return 1 if work.failures else 0


if __name__ == "__main__":
    sys.exit(main())
