"""Threads that compile, call, train and drop functions at once:

    python -m tests.faults.many_threads [--threads 16] [--seconds 600] [--sanitise [memory|races]]

Each result is compared with eager's. With `--sanitise` this runs with an extension that is built
for it, whose reports end it: under the address and the undefined-behaviour sanitiser, or under that
for threads. CPython and torch are not built for the last one, which sees their locks all the same:
what happens under the interpreter's lock is in order, and what the extension does without it is
watched.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fusewright
from fusewright.native import _extension

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Sanitiser:
    """One way to build the extension, and to run it."""

    flags: str
    libraries: tuple[str, ...]
    """Loaded before the interpreter."""

    environment: dict[str, str]
    calls: tuple[bytes, ...]
    """Functions that only code built so calls."""


SANITISERS = {
    "memory": Sanitiser(
        flags="-fsanitize=address,undefined",
        libraries=("libasan", "libubsan"),
        environment={
            # What the interpreter and torch leave to the end of the process is no leak of ours.
            "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:detect_stack_use_after_return=1",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        },
        calls=(b"__asan_report_load8", b"__ubsan_handle"),
    ),
    "races": Sanitiser(
        flags="-fsanitize=thread",
        libraries=("libtsan",),
        # Python's handlers of signals allocate, which is another matter.
        environment={
            "TSAN_OPTIONS": "halt_on_error=1:report_signal_unsafe=0:exitcode=66:"
            f"suppressions={Path(__file__).with_name('races_of_others.txt')}"
        },
        calls=(b"__tsan_func_entry",),
    ),
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


def sanitised(name: str, arguments: Sequence[str]) -> int:
    """Run this program with an extension that is built for a sanitiser; its exit status."""
    sanitiser = SANITISERS[name]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True)
        flags = f"{sanitiser.flags} -O0 -g1 -fno-omit-frame-pointer"
        command = [sys.executable, "setup.py", "-q", "build_ext", "--force"]
        subprocess.run(
            [*command, "--build-lib", folder, "--build-temp", f"{folder}/build"],
            env={**os.environ, "CFLAGS": flags, "LDFLAGS": sanitiser.flags},
            cwd=ROOT,
            check=True,
        )
        environment = {**under(sanitiser), "PYTHONPATH": f"{folder}:{ROOT}"}
        command = [sys.executable, "-m", "tests.faults.many_threads", *arguments]
        return subprocess.run(
            [*at_fixed_addresses(), *command], env=environment, cwd=ROOT, check=False
        ).returncode


def under(sanitiser: Sanitiser) -> dict[str, str]:
    """The environment of an interpreter that loads what was built for a sanitiser."""
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in sanitiser.libraries
    ]
    return {
        **os.environ,
        **sanitiser.environment,
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": " ".join(libraries),
    }


def at_fixed_addresses() -> list[str]:
    """Words before a command that turn off random addresses, where that is allowed: the sanitiser
    for threads has no room for those of newer kernels.
    """
    words = ["setarch", "-R"]
    allowed = shutil.which("setarch") and subprocess.run([*words, "true"], check=False)
    return words if allowed and allowed.returncode == 0 else []


def sanitiser_loaded() -> str | None:
    """The sanitiser that the extension was built for."""
    built = Path(_extension.__file__).read_bytes()
    for name, sanitiser in SANITISERS.items():
        if all(call in built for call in sanitiser.calls):
            return name
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--sanitise", nargs="?", const="memory", choices=list(SANITISERS))
    options = parser.parse_args(arguments)
    if options.sanitise:
        return sanitised(
            options.sanitise, ["--threads", str(options.threads), "--seconds", str(options.seconds)]
        )
    work = Work(options.seconds)
    threads = [
        threading.Thread(target=work.run, args=(number,)) for number in range(options.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loaded = sanitiser_loaded()
    kind = f"with sanitisers of {loaded}" if loaded else "as built"
    print(f"{work.steps} steps on {len(threads)} threads, {kind}", *work.failures[:1], flush=True)
    return 1 if work.failures else 0


if __name__ == "__main__":
    sys.exit(main())
