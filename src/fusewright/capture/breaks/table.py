"""The graph breaks of one compiled callable, kept from one call to the next."""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType

from fusewright.capture.breaks.predicted import PredictedBreak
from fusewright.capture.bytecode.resume import ResumeTable


class BreakTable:
    """The resume functions of one compiled callable, and how they are to be captured."""

    def __init__(self) -> None:
        self.resumes = ResumeTable()
        self.predicted = PredictedBreak()
        self.native: set[CodeType] = set()
        """Code of resume functions that run as they are."""

        self._open: dict[CodeType, tuple[frozenset[str], frozenset[str]]] = {}

    def leave_open(self, code: CodeType, values: Iterable[str], results: Iterable[str]) -> None:
        """Note which parameters of a resume function are other ones at each call: values of which
        nothing was known where it broke, and results of an instruction that was given such.
        """
        before = self.left_open(code)
        self._open[code] = before[0].union(values), before[1].union(results)

    def left_open(self, code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
        """The parameters that were noted, and those that are results."""
        return self._open.get(code, (frozenset(), frozenset()))
