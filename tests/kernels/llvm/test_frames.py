"""What kernels take of a thread's stack, however long and many their rows are."""

from __future__ import annotations

import re

import pytest
import torch
from torch import fx

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.pipeline import compile_graph
from fusewright.runtime.memory_checks import ALLOCATION

BYTES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}


def frame_bytes(source: str) -> int:
    """Bytes of all locals of a kernel; their number is known."""
    total = 0
    for _, kind, count in ALLOCATION.findall(source):
        lanes, element = re.fullmatch(r"(?:[<\[](\d+) x )?(\w+)[>\]]?", kind).groups()
        total += int(lanes or 1) * BYTES[element] * int(count or 1)
    return total


@pytest.mark.parametrize(
    ("size", "dim", "count", "most"),
    [((32768, 17), 0, 3, 5 << 20), ((2, 32768), 1, 6, 5 << 17)],
    ids=["columns", "rows"],
)
def test_rows_leave_room_on_the_stack(
    size: tuple[int, int], dim: int, count: int, most: int
) -> None:
    """A row of 128 KiB for each of several softmaxes, a vector an element where columns are the
    lanes, is more than a thread has."""

    def program(x: torch.Tensor) -> torch.Tensor:
        total = x
        for number in range(count):
            total = total + (x * (number + 1)).sin().exp().softmax(dim)
        return total

    x = torch.randn(size)
    context = CompileContext(Options())
    compiled = compile_graph(fx.symbolic_trace(program), [x], context)
    assert all(frame_bytes(kernel.source) <= most for kernel in compiled.record.kernels)
    torch.testing.assert_close(compiled(x), program(x))
