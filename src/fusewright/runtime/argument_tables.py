"""Tables of arguments: a kernel that does the work of many launches finds the addresses of their
tensors in memory of the GPU, since its parameters are too few for them.

A table begins with a number for each launch: its first program, and in the lower half its elements.
Then come the arguments, those of the first launch before those of the second: addresses, and the
bits of numbers of the CPU. Each launch of the kernel is given memory of its own for its table. A
kernel whose parameters are the values writes it, ahead of the other and on the same stream: so a
CUDA graph that records both holds the values itself, and no call waits for another's.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final

from fusewright.runtime import cuda_driver
from fusewright.runtime.cuda_driver import DriverRefused

VALUE_BYTES: Final = 8
FEW_VALUES: Final = 480
MOST_VALUES: Final = 4000
"""Values that one launch writes: as many as fit the parameters of a kernel, 4096 bytes, and 32,764
since CUDA 12.1. The driver copies all of them, so that few have a kernel of their own.
"""

VERSIONS: Final = {FEW_VALUES: "6.0", MOST_VALUES: "8.1"}
"""The versions of PTX that allow so many parameters."""

WRITER: Final = """.version {version}
.target sm_70
.address_size 64

.visible .entry write_{values}(
    .param .u64 table, .param .u32 count, .param .align 8 .b8 values[{bytes}]
)
{{
    .reg .pred %behind;
    .reg .b32 %place, %thread, %count;
    .reg .b64 %offset, %source, %target, %value;
    mov.u32 %place, %ctaid.x;
    shl.b32 %place, %place, 7;
    mov.u32 %thread, %tid.x;
    or.b32 %place, %place, %thread;
    ld.param.u32 %count, [count];
    setp.ge.u32 %behind, %place, %count;
    @%behind ret;
    mul.wide.u32 %offset, %place, 8;
    mov.b64 %source, values;
    add.s64 %source, %source, %offset;
    ld.param.u64 %value, [%source];
    ld.param.u64 %target, [table];
    cvta.to.global.u64 %target, %target;
    add.s64 %target, %target, %offset;
    st.global.u64 [%target], %value;
    ret;
}}
"""
"""A kernel of 128 threads a program, each of which writes one value."""


def assembly(values: int) -> str:
    """The kernel that writes so many values, as PTX, which the driver compiles for any GPU."""
    return WRITER.format(version=VERSIONS[values], values=values, bytes=VALUE_BYTES * values)


@functools.cache
def _writer(device: int, values: int) -> int:
    return cuda_driver.load(device, assembly(values).encode() + b"\0", f"write_{values}", 0)


def writer(device: int, first: bytes, tensors: int) -> tuple[int, int]:
    """The function, loaded on a GPU, that writes the table of a kernel of so many tensors, itself
    the last of them: `first_values`, then the addresses of the others; and how many values a launch
    writes. Raises: DriverRefused.
    """
    values = len(first) // VALUE_BYTES + tensors - 1
    if values > FEW_VALUES:
        with suppress(DriverRefused):  # One older than CUDA 12.1 needs more launches.
            return _writer(device, MOST_VALUES), MOST_VALUES
    return _writer(device, FEW_VALUES), FEW_VALUES


def first_values(launches: Sequence[int], block: int) -> bytes:
    """The numbers that a table begins with, for launches of so many elements, of which a program
    computes `block`.
    """
    programs = (-(-elements // block) for elements in launches)
    pairs = zip(accumulate(programs, initial=0), launches, strict=False)  # The sum comes last.
    return array("q", [first << 32 | elements for first, elements in pairs]).tobytes()
