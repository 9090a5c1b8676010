"""The user's source with marks: where graphs break, functions are compiled again, and what runs for
each line.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable

from fusewright.inspect.explanation import shorten_paths
from fusewright.records import field, record

AROUND = 2
"""Lines that are shown on either side of a mark."""

JOINED = 4
"""Excerpts with no more lines between them are one."""


PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


def is_users(file: str) -> bool:
    """Whether a file is one that a user can read, and not one of the compiler's."""
    return bool(file) and not file.startswith(("<", PACKAGE))


@record(kw_only=True)
class LineMark:
    """Something that happened because of one line."""

    kind: str
    """`break`, `recompile`, `eager`, `kernel`, `library` or `guard`."""

    text: str
    target: str = ""
    """The kernel that it is about."""


@record(kw_only=True)
class SourceLine:
    """A line as it is shown."""

    number: int
    text: str
    marks: tuple[LineMark, ...]


@record(kw_only=True)
class SourceFile:
    """The marked lines of a file with those around them, in pieces."""

    path: str
    excerpts: tuple[tuple[SourceLine, ...], ...]
    marks: int


@record(frozen=False)
class Marks:
    """Marks by file and line, each once."""

    by_line: dict[tuple[str, int], dict[LineMark, int]] = field(default_factory=dict)

    def add(self, file: str, line: int, mark: LineMark) -> None:
        """Note a mark, and how often it is made."""
        if line > 0 and is_users(file):
            marks = self.by_line.setdefault((file, line), {})
            marks[mark] = marks.get(mark, 0) + 1

    def files(self) -> list[SourceFile]:
        """The files, those with most marks first."""
        files = dict.fromkeys(file for file, _ in self.by_line)
        shown = [self._file(file) for file in files]
        return sorted(filter(None, shown), key=lambda file: -file.marks)

    def _file(self, file: str) -> SourceFile | None:
        lines = sorted(line for own, line in self.by_line if own == file)
        length = len(linecache.getlines(file))
        if length == 0:
            return None
        excerpts = [
            tuple(self._line(file, number) for number in range(first, last + 1))
            for first, last in _ranges(lines, length)
        ]
        return SourceFile(path=shorten_paths(file), excerpts=tuple(excerpts), marks=len(lines))

    def _line(self, file: str, number: int) -> SourceLine:
        marks = self.by_line.get((file, number), {})
        counted = [
            LineMark(kind=mark.kind, text=_times(mark.text, count), target=mark.target)
            for mark, count in sorted(marks.items(), key=lambda item: _ORDER.index(item[0].kind))
        ]
        text = linecache.getline(file, number).rstrip("\n")
        return SourceLine(number=number, text=text, marks=tuple(counted))


_ORDER = ("break", "recompile", "eager", "kernel", "library", "guard")


def _times(text: str, count: int) -> str:
    return text if count == 1 else f"{text} × {count}"


def _ranges(lines: Iterable[int], length: int) -> list[tuple[int, int]]:
    """Lines with those around them, as pieces that do not touch."""
    ranges: list[tuple[int, int]] = []
    for line in lines:
        first, last = max(1, line - AROUND), min(length, line + AROUND)
        if ranges and first - ranges[-1][1] <= JOINED:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    return ranges
