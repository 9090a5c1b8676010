"""Events of compiled code for profilers: kernels and library calls, with the user's lines.

While torch's profiler is on, or `recording` lasts, the C function that runs a native plan calls
`begin` ahead of each. The lines stand as comments in the plan's readable twin, which is read then;
otherwise nothing is done, and a call asks one question.

With `FUSEWRIGHT_NVTX=1` each is an NVTX range, too, which NVIDIA's tools show beside what the GPU
does: `torch.autograd.profiler.emit_nvtx` has the same ranges among those of all of eager's
operators.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from fusewright import native, torch_compat
from fusewright.records import record

PLACES: Final = 3
"""Lines that a label names at most."""

NVTX_SWITCH: Final = "FUSEWRIGHT_NVTX"

_COMMENT: Final = re.compile(r"\s*# (?:… and \d+ more|(\S+)(?: at (.+):(\d+))?)\s*$")
"""A line of a generated module that says where the next one comes from, or of how many others."""


@record(kw_only=True)
class Label:
    """One kernel or library call, as profilers show it."""

    kernel: str
    """The kernel's name; empty for a library call."""

    operators: tuple[str, ...]
    places: tuple[tuple[str, int], ...]
    """The user's files and lines, each once."""

    @property
    def text(self) -> str:
        """`cpu_gelu_338083b7 activations.py:89`"""
        name = self.kernel or self.operators[0]
        shown = [f"{os.path.basename(file)}:{line}" for file, line in self.places[:PLACES]]
        more = ["…"] if len(self.places) > PLACES else []
        return " ".join([name, ", ".join([*shown, *more])]).strip()


@functools.lru_cache(1 << 16)
def label_of(file: str | None, line: int, kernel: str) -> Label | None:
    """The label of what a line of a generated module computes; None where it has none."""
    origins = list(_origins(file, line)) if file else []
    if not (kernel or origins):
        return None
    places = dict.fromkeys((place, int(number)) for _, place, number in origins if place)
    operators = dict.fromkeys(operator for operator, _, _ in origins)
    return Label(kernel=kernel, operators=tuple(operators), places=tuple(places))


def _origins(file: str, line: int) -> Iterator[tuple[str, str, str]]:
    """Operators, files and lines in the comments above a line."""
    lines = linecache.getlines(file)[: max(line - 1, 0)]
    above = itertools.takewhile(bool, map(_COMMENT.match, reversed(lines)))
    for match in reversed(list(above)):
        assert match is not None
        if match[1] is not None:
            yield match[1], match[2] or "", match[3] or "0"


def _kernel_name(called: Any) -> str:
    """The name of a kernel; empty for what else is called, of which `name` may be a method."""
    name = getattr(called, "name", "")
    return name if isinstance(name, str) else ""


def begin(file: str | None, line: int, kernel: Any) -> Any:
    """Tell torch's profiler that a line of a generated module begins. What is told of the end."""
    label = label_of(file, line, _kernel_name(kernel))
    if label is None:
        return None
    guard = torch_compat.RecordFunction(label.text)
    guard.__enter__()
    return guard


class _Range:
    """An NVTX range of the current thread, and what torch's profiler is told meanwhile."""

    def __init__(self, text: str) -> None:
        self._guard = torch_compat.RecordFunction(text)
        self._guard.__enter__()
        torch.cuda.nvtx.range_push(text)

    def __exit__(self, *exception: object) -> None:
        torch.cuda.nvtx.range_pop()
        self._guard.__exit__(None, None, None)


def _begin_range(file: str | None, line: int, kernel: Any) -> Any:
    label = label_of(file, line, _kernel_name(kernel))
    return None if label is None else _Range(label.text)


def tell_profilers() -> None:
    """Have profilers told of kernels and library calls from now on: torch's while it is on, and
    NVIDIA's tools where the environment asks for that.
    """
    if os.environ.get(NVTX_SWITCH) == "1" and _has_nvtx():
        native.set_profiler(_begin_range, True)
    else:
        native.set_profiler(begin, False)


def _has_nvtx() -> bool:
    """Whether this torch can make NVTX ranges; else a warning says so."""
    try:
        torch.cuda.nvtx.mark("fusewright")
    except RuntimeError as error:
        message = f"fusewright: {NVTX_SWITCH}=1 makes no ranges here: torch's answer is {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return False
    return True


@record(frozen=False)
class Spent:
    """Calls of one kernel or library call, and their time."""

    count: int = 0
    seconds: float = 0.0


@contextmanager
def recording() -> Iterator[dict[Label, Spent]]:
    """A block in which the time of each kernel and library call of all threads is added up, by
    label. On a GPU each is waited for.
    """
    spent: dict[Label, Spent] = {}

    def begin_recorded(file: str | None, line: int, kernel: Any) -> Any:
        label = label_of(file, line, _kernel_name(kernel))
        return None if label is None else _Watch(spent.setdefault(label, Spent()))

    native.set_profiler(begin_recorded, True)
    try:
        yield spent
    finally:
        tell_profilers()


class _Watch:
    """Takes the time of one call."""

    def __init__(self, spent: Spent) -> None:
        self._spent = spent
        self._wait: Callable[[], None] | None = None
        if torch.cuda.is_initialized():
            self._wait = torch.cuda.synchronize
            self._wait()
        self._began = time.perf_counter()

    def __exit__(self, *exception: object) -> None:
        if self._wait is not None:
            self._wait()
        self._spent.seconds += time.perf_counter() - self._began
        self._spent.count += 1


tell_profilers()
