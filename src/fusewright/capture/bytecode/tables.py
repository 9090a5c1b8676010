"""CPython's packed tables beside the bytecode: source locations and exception regions.

Formats: `Objects/locations.md` and `Objects/exception_handling_notes.txt` of CPython 3.11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusewright.capture.bytecode.instruction import NO_POSITIONS, Positions
from fusewright.records import record

# Codes of a location entry's first byte; below 10 the code is the short form's column group.
_ONE_LINE = 10
_NO_COLUMNS = 13
_LONG = 14
_NOTHING = 15

_LONGEST_ENTRY = 8
"""Code units that one location entry can cover."""


def encode_locations(spans: Iterable[tuple[int, Positions]], first_line: int) -> bytes:
    """The location table for `spans` of so many code units each, of a function at `first_line`."""
    table = bytearray()
    line = first_line
    for length, positions in spans:
        for start in range(0, length, _LONGEST_ENTRY):
            part = min(length - start, _LONGEST_ENTRY)
            line = _append_location(table, part, positions, line)
    return bytes(table)


def _append_location(table: bytearray, length: int, positions: Positions, line: int) -> int:
    """Append an entry in its shortest form; return the line that the next one counts from."""
    start, end, column, end_column = positions

    def begin(code: int) -> None:
        table.append(0x80 | code << 3 | (length - 1))

    if start is None:
        begin(_NOTHING)
        return line

    delta = start - line
    if column is None or end_column is None:
        if end is None or end == start:
            begin(_NO_COLUMNS)
            _append_signed(table, delta)
            return start
    elif end == start:
        width = end_column - column
        if delta == 0 and column < 80 and 0 <= width < 16:
            begin(column >> 3)
            table.append((column & 7) << 4 | width)
            return start
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            begin(_ONE_LINE + delta)
            table += bytes((column, end_column))
            return start

    begin(_LONG)
    _append_signed(table, delta)
    _append_unsigned(table, (end if end is not None else start) - start)
    _append_unsigned(table, 0 if column is None else column + 1)
    _append_unsigned(table, 0 if end_column is None else end_column + 1)
    return start


def _append_unsigned(table: bytearray, value: int) -> None:
    """Six bits a byte, lowest first, with bit 6 set on all but the last."""
    while value >= 64:
        table.append(64 | value & 63)
        value >>= 6
    table.append(value)


def _append_signed(table: bytearray, value: int) -> None:
    """The sign in the lowest bit of an unsigned number."""
    _append_unsigned(table, -value << 1 | 1 if value < 0 else value << 1)


def merge_locations(spans: Iterable[tuple[int, Positions]]) -> Iterator[tuple[int, Positions]]:
    """Join neighbouring spans of the same position."""
    length, current = 0, NO_POSITIONS
    for span, positions in spans:
        if positions != current:
            yield length, current
            length, current = 0, positions
        length += span
    yield length, current


@record
class ExceptionEntry:
    """A row of the exception table; places are counted in code units."""

    start: int
    end: int
    """The first code unit after the region."""

    handler: int
    stack_depth: int
    saves_offset: bool


def encode_exceptions(entries: Iterable[ExceptionEntry]) -> bytes:
    """The exception table for entries in order of their start."""
    table = bytearray()
    for entry in entries:
        fields = (
            entry.start,
            entry.end - entry.start,
            entry.handler,
            entry.stack_depth << 1 | entry.saves_offset,
        )
        for value, marker in zip(fields, (0x80, 0, 0, 0), strict=True):
            _append_exception_number(table, value, marker)
    return bytes(table)


def _append_exception_number(table: bytearray, value: int, marker: int) -> None:
    """Six bits a byte, highest first, bit 6 set on all but the last, `marker` set on the first."""
    chunks = [value & 63]
    while value >= 64:
        value >>= 6
        chunks.append(64 | value & 63)
    chunks.reverse()
    chunks[0] |= marker
    table += bytes(chunks)


def decode_exceptions(table: bytes) -> Iterator[ExceptionEntry]:
    """The rows of an exception table."""
    reader = iter(table)
    for first in reader:
        start = _read_exception_number(first & 0x7F, reader)
        length, handler, depth_and_flag = (
            _read_exception_number(next(reader), reader) for _ in range(3)
        )
        yield ExceptionEntry(
            start, start + length, handler, depth_and_flag >> 1, bool(depth_and_flag & 1)
        )


def _read_exception_number(byte: int, reader: Iterator[int]) -> int:
    """The number that begins with `byte`, its marker bit removed."""
    value = byte & 63
    while byte & 64:
        byte = next(reader)
        value = value << 6 | byte & 63
    return value
