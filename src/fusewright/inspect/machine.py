"""The speed of this machine: how fast it copies memory, how many products it adds up a second."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Final

import torch
from torch import fx

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.dtype import DType
from fusewright.pipeline import compile_graph

COPIED_BYTES: Final = 64 << 20
"""Beyond what caches hold."""

PRODUCT_SIZE: Final = 768
REPEATS: Final = 5
LONG: Final = 0.5
"""Seconds after which nothing is repeated."""


@functools.cache
def copy_bandwidth(device: str = "cpu") -> float:
    """Bytes a second that a large copy moves, reading and writing together: the best of some."""
    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    return 2 * COPIED_BYTES / _least_seconds(lambda: target.copy_(source), device)


@functools.cache
def product_rate(device: str = "cpu", dtype: DType = DType.F32) -> float:
    """Floating-point operations a second of a large product of square matrices: the best of some,
    by the library and, on a CPU, by a kernel.
    """
    size = PRODUCT_SIZE if device == "cpu" else 8 * PRODUCT_SIZE
    matrix = torch.ones(size, size, device=device, dtype=getattr(torch, dtype.torch_name))
    result = torch.empty_like(matrix)
    with torch.no_grad():
        seconds = _least_seconds(lambda: torch.mm(matrix, matrix, out=result), device)
        if device == "cpu":
            multiply = _compiled_product(matrix)
            seconds = min(seconds, _least_seconds(lambda: multiply([matrix, matrix]), device))
    return 2 * size**3 / seconds


def _compiled_product(matrix: torch.Tensor) -> Callable[[list[torch.Tensor]], object]:
    """A compiled product of two matrices such as `matrix`."""
    graph = fx.Graph()
    left, right = graph.placeholder("left"), graph.placeholder("right")
    graph.output((graph.call_function(torch.mm, (left, right)),))
    module = fx.GraphModule({}, graph)
    return compile_graph(module, [matrix, matrix], CompileContext(options=Options())).run


def _least_seconds(work: Callable[[], object], device: str) -> float:
    times: list[float] = []
    while len(times) <= REPEATS and sum(times) < LONG:
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        times.append(time.perf_counter() - began)
    return min(times)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
