"""Threads that compile and call at once, for as long as is asked:

    python -m tests.native.threads [--seconds 60] [--threads 16]

Each thread takes programs at random, some that all threads share and some of its own: kernels
alone, library calls, training steps, graph breaks, sizes that vary, exceptions, writes to inputs,
generators. Objects die while others run, and now and then everything is forgotten. Each result is
compared with eager's; it ends with 1 at the first that differs.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

import fusewright

Program = Callable[..., Any]


def kernel(x: Any) -> Any:
    return (x * 2 + 1).relu()


def library(x: Any) -> Any:
    return torch.linalg.matrix_norm(x @ x.transpose(-1, -2)) + x.sum()


def broken(x: Any) -> Any:
    y = x.sin()
    if y.sum() > 0:
        y = y * 2
    return y + 1


def raises(x: Any) -> Any:
    try:
        return x[torch.tensor([100])]
    except IndexError:
        return x - 1


def writes(x: Any) -> Any:
    x.add_(1)
    return x[1:].mul_(2).sum()


def generated(x: Any) -> Any:
    def halves() -> Any:
        for part in x.chunk(2):
            yield part * 3

    return sum(part.sum() for part in halves())


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.inner(self.norm(F.pad(x, (0, 8 - x.shape[-1]), value=0.5))).relu()


PROGRAMS: tuple[Program, ...] = (kernel, library, broken, raises, writes, generated)


class Work:
    """What all threads do until the time is over or one result differs."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.shared = [fusewright.compile(program) for program in PROGRAMS]
        self.failures: list[str] = []
        self.calls = 0
        self.compiles = 0

    def run(self, seed: int) -> None:
        """The work of one thread."""
        source = random.Random(seed)
        steps = (self._shared, self._shared, self._own, self._module, self._training, self._forget)
        while time.monotonic() < self.end and not self.failures:
            try:
                source.choice(steps)(source)
            except Exception:
                self.failures.append(traceback.format_exc())

    def _shared(self, source: random.Random) -> None:
        which = source.randrange(len(PROGRAMS))
        self._compare(self.shared[which], PROGRAMS[which], source, calls=20)

    def _own(self, source: random.Random) -> None:
        """A function of this thread's own, which dies with its code."""
        names: dict[str, Any] = {"torch": torch}
        factor = source.random()
        exec(f"def own(x):\n    return (x * {factor} + torch.cos(x)).sum(-1)\n", names)
        self.compiles += 1
        self._compare(fusewright.compile(names["own"]), names["own"], source, calls=3)

    def _module(self, source: random.Random) -> None:
        module = Block()
        self.compiles += 1
        with torch.no_grad():
            self._compare(fusewright.compile(module), module, source, calls=3)

    def _training(self, source: random.Random) -> None:
        names: dict[str, Any] = {"F": F}
        exec("def loss(x):\n    return (F.gelu(x) ** 2).mean() / 3\n", names)
        compiled = fusewright.compile(names["loss"])
        self.compiles += 1
        for _ in range(3):
            x = torch.randn(source.choice((3, 5)), 4)
            slopes = []
            for function in (compiled, names["loss"]):
                leaf = x.clone().requires_grad_()
                function(leaf).backward()
                slopes.append(leaf.grad)
            torch.testing.assert_close(slopes[0], slopes[1])

    def _forget(self, source: random.Random) -> None:
        if source.random() < 0.02:
            gc.collect()
        if source.random() < 0.005:
            fusewright.reset()

    def _compare(
        self, compiled: Program, program: Program, source: random.Random, *, calls: int
    ) -> None:
        for _ in range(calls):
            self.calls += 1
            x = torch.randn(source.choice((2, 4, 6)), source.choice((3, 5)))
            other = x.clone()
            torch.testing.assert_close(compiled(x), program(other), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(x, other)


def main() -> int:
    """Run the threads, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=16)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    work = Work(options.seconds)
    threads = [threading.Thread(target=work.run, args=(seed,)) for seed in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{options.threads} threads, {work.compiles} compiles, {work.calls} calls")
    for failure in work.failures:
        print(failure)
    return 1 if work.failures else 0


if __name__ == "__main__":
    sys.exit(main())
