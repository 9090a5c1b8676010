"""What calls leave behind: references, tensors, memory, the state of the process."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from fusewright.modes import Modes
from fusewright.native import _extension

AT_ONCE: Final = int(os.environ.get("FUSEWRIGHT_TEST_CALLS", "1"))
"""How many calls of a program count as one that is to leave nothing behind: with more, what only
some of them leave is seen, too. 10,000 take some minutes a program.
"""

ROUNDS: Final = tuple(6 << doubled for doubled in range(8))
"""How often what is to leave nothing is done between two looks, until they see the same."""

LEAST_CHUNK: Final = 32
"""Bytes: the C library gives out no less."""


class _Allocations(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = [
        *((f"other{number}", ctypes.c_size_t) for number in range(4)),
        ("hblkhd", ctypes.c_size_t),
        ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]


def held_bytes() -> int:
    """What the C library has given out, and Python's small objects at the least size."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _Allocations
    allocations = ask()
    blocks = sys.getallocatedblocks() * LEAST_CHUNK
    return int(allocations.uordblks + allocations.hblkhd + blocks)


def leaves_nothing(
    call: Callable[[], object], references: Callable[[], tuple[int, ...]] = tuple
) -> None:
    """Whether each call leaves references, tensors or memory behind: at least one chunk of it.
    `references` counts those to objects that the call uses. What others keep, and how memory is cut
    up, varies from look to look, whatever is called in between: they come ever later.
    """

    def measure() -> tuple[int, tuple[int, ...]]:
        gc.collect()
        tensors = sum(isinstance(one, torch.Tensor) for one in gc.get_objects())
        return held_bytes(), (tensors, *references())

    call()
    seen = []
    for count in ROUNDS:
        bytes_before, before = measure()
        for _ in range(count):
            call()
        bytes_after, after = measure()
        if before == after and bytes_after - bytes_before < count * LEAST_CHUNK:
            return
        seen.append((bytes_after - bytes_before, before, after))
    raise AssertionError(seen)


@contextmanager
def nothing_left_changed() -> Iterator[None]:
    """The state of the process and the thread is the same afterwards."""
    before = _process_state()
    try:
        yield
    finally:
        assert _process_state() == before


def _process_state() -> Any:
    return (
        gc.isenabled(),
        sys.getrecursionlimit(),
        Modes.now(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
        _extension.is_installed(),
        threading.active_count(),
    )


def repeated(call: Callable[[], object]) -> Callable[[], None]:
    """So many calls as one."""

    def calls() -> None:
        for _ in range(AT_ONCE):
            call()

    return calls
