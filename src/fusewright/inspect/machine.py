"""The speed of this machine: how fast it copies memory, how many products it adds up a second."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Final

import torch

COPIED_BYTES: Final = 64 << 20
"""Beyond what caches hold."""

PRODUCT_SIZE: Final = 768
REPEATS: Final = 5


@functools.cache
def copy_bandwidth(device: str = "cpu") -> float:
    """Bytes a second that a large copy moves, reading and writing together: the best of some."""
    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    return 2 * COPIED_BYTES / _least_seconds(lambda: target.copy_(source), device)


@functools.cache
def product_rate(device: str = "cpu") -> float:
    """Floating-point operations a second of a product of single-precision matrices: the best of
    some.
    """
    size = PRODUCT_SIZE if device == "cpu" else 8 * PRODUCT_SIZE
    matrix = torch.ones(size, size, device=device)
    result = torch.empty_like(matrix)
    seconds = _least_seconds(lambda: torch.mm(matrix, matrix, out=result), device)
    return 2 * size**3 / seconds


def _least_seconds(work: Callable[[], object], device: str) -> float:
    times = []
    for _ in range(REPEATS + 1):
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        times.append(time.perf_counter() - began)
    return min(times[1:])


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
