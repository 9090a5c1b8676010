"""The guards of one compiled function: whether they hold, and in words which of them failed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from fusewright.capture.guards.kinds import GONE, GuardKind, Kind
from fusewright.capture.sources import Source
from fusewright.errors import Location
from fusewright.events import FailedGuard
from fusewright.native import GuardProgram
from fusewright.records import record


@record
class Check:
    """One test of a program, with what it takes to speak of it."""

    kind: Kind
    subject: Source | str
    """The source of the object tested, or its text where it would keep a class alive."""

    expected: Any
    """Held weakly where it belongs to the user: see `value`."""

    location: Location | None

    @property
    def expression(self) -> str:
        """The object tested, as the user would write it."""
        return self.subject if isinstance(self.subject, str) else self.subject.expression()

    @property
    def value(self) -> Any:
        """The expected object or fact; GONE when it is no more."""
        if not isinstance(self.expected, weakref.ref):
            return self.expected
        value = self.expected()
        return GONE if value is None else value

    def failure(self, tested: tuple[Any, ...]) -> FailedGuard:
        """Why the test does not hold: `tested` has the object, or nothing if none was there;
        for relations between sizes, the numbers read where those could be.
        """
        value = self.value
        if self.kind is GuardKind.SHAPES and tested and isinstance(tested[0], tuple):
            failure: FailedGuard = value.guard.failure(tested[0])
            return failure
        difference = None
        if self.kind is GuardKind.TENSOR and tested:
            difference = value.difference(tested[0])
        read, expected, actual = difference or ("", self.kind.says(value), self._finds(tested))
        return FailedGuard(self.expression + read, expected, actual, self.location)

    def _finds(self, tested: tuple[Any, ...]) -> str:
        if not tested:
            return "nothing there"
        try:
            return self.kind.finds(self.value, tested[0])
        except Exception:  # An object of another class, or with a `__repr__` that raises.
            return f"an object of {type(tested[0])!r}"


@record
class GuardSet:
    """The guards of one compiled function."""

    program: GuardProgram
    checks: tuple[Check, ...]
    """The program's tests, in order."""

    def check(self, locals: dict[str, Any], function: FunctionType | None = None) -> bool:
        """Whether all guards hold for a call of `function` with these arguments by name."""
        return self.program.check(locals, function)

    def failing(self, locals: dict[str, Any], function: FunctionType | None = None) -> Check | None:
        """The first test that does not hold; None when all hold."""
        failure = self.program.explain(locals, function)
        return None if failure is None else self.checks[failure[0]]

    def explain(
        self, locals: dict[str, Any], function: FunctionType | None = None
    ) -> FailedGuard | None:
        """The first guard that does not hold, in words; None when all hold."""
        failure = self.program.explain(locals, function)
        if failure is None:
            return None
        index, tested = failure
        return self.checks[index].failure(tested)

    def facts(self) -> Iterator[tuple[Check, str, str, Location | None]]:
        """The tests in words: the check, what is read, what is expected, the user's line. Relations
        between sizes, for which several checks read, are listed one by one.
        """
        related = False
        for check in self.checks:
            if check.kind is not GuardKind.SHAPES:
                yield check, check.expression, check.kind.says(check.value), check.location
            elif not related:
                related = True
                for relation, location in check.value.guard.texts():
                    yield check, relation, "true", location

    def table(self) -> str:
        """All guards, one a line: kind, expression, expected, the user's line."""
        rows = [
            (check.kind.title, expression, expected, str(location or ""))
            for check, expression, expected, location in self.facts()
        ]
        rows.insert(0, ("kind", "expression", "expected", "because of"))
        widths = [min(max(len(row[i]) for row in rows), 60) for i in range(3)]
        return "\n".join(_table_line(row, widths) for row in rows)


def _table_line(row: tuple[str, ...], widths: list[int]) -> str:
    """A row's cells in columns; the last one takes the rest of the line."""
    *cells, last = row
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join([*padded, last]).rstrip()
