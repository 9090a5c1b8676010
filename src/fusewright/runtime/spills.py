"""What threads of a kernel keep in memory for want of registers, as machine code for a GPU says.

A thread has 255 registers at most, and memory of its own for the rest, which is a hundred times as
slow: a dropout chain's gradient took eight times as long where it had 32 elements a thread as with
16. The assembler alone knows how many registers a kernel needs, and versions of it differ. What can
be told before, by the elements that a thread holds, blocks are chosen by
(`kernels.triton.in_flight.crowded_axis`): the number of warps is all that can change here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

_SECTION_HEADERS: Final = struct.Struct("<40x Q 10x H H H")
"""Of an ELF file's head: where the headers of its sections are, how long each is, how many there
are, and which of them is of the section with all names.
"""

_SECTION: Final = struct.Struct("<I 20x Q Q")
"""Of a section's header: where its name begins, where the section begins, how long it is."""

_HEAD: Final = struct.Struct("<B B H")
"""Of an attribute: its format, its kind, and a number: itself, or the bytes of what follows."""

_WITH_BYTES: Final = 4
"""The format of attributes behind whose head their value stands."""

_FRAME_SIZE: Final = 0x11
"""The kind of the attribute that says how much memory of its own a thread needs for a function."""

_FUNCTION_AND_NUMBER: Final = struct.Struct("<I I")

_FRAME_UNIT: Final = 16
"""Frames are whole multiples of it, or of a divisor."""

_ARRAY = re.compile(r"\.local \.align \d+ \.b8\s+\w+\[(\d+)\]")


def spilled_bytes(code: bytes, assembly: str) -> int:
    """The bytes that each thread has in memory for want of registers; `assembly` is the PTX that
    `code`, a cubin, was made of: arrays that are declared there are in memory by design.
    """
    declared = sum(map(int, _ARRAY.findall(assembly)))
    by_design = -(-declared // _FRAME_UNIT) * _FRAME_UNIT
    return max(0, max(_frames(code), default=0) - by_design)


def _frames(code: bytes) -> Iterator[int]:
    """How much memory of its own a thread needs for each function."""
    for section in _sections(code, b".nv.info"):
        place = 0
        while place < len(section):
            form, kind, size = _HEAD.unpack_from(section, place)
            place += _HEAD.size
            if form == _WITH_BYTES:
                if kind == _FRAME_SIZE:
                    yield _FUNCTION_AND_NUMBER.unpack_from(section, place)[1]
                place += size


def _sections(code: bytes, wanted: bytes) -> Iterator[bytes]:
    """The sections of an ELF file that have this name."""
    start, size, count, names = _SECTION_HEADERS.unpack_from(code)
    headers = [_SECTION.unpack_from(code, start + size * number) for number in range(count)]
    _, names_start, names_size = headers[names]
    text = code[names_start : names_start + names_size]
    for name, begin, length in headers:
        if text[name : text.index(b"\0", name)] == wanted:
            yield code[begin : begin + length]
