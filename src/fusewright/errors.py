"""The exceptions that users meet, each naming what happened, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's program."""

    file: str
    line: int
    text: str = ""
    """The source line, stripped; empty when the file cannot be read."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place}  {self.text}" if self.text else place


class FusewrightError(Exception):
    """Base of every exception that fusewright raises on its own account."""


class Unsupported(FusewrightError):
    """The program does something that cannot be captured; the text says what, where and what to
    change.
    """

    def __init__(
        self, what: str, location: Location | None = None, remedy: str = "", reason: str = ""
    ) -> None:
        self.what = what
        self.location = location
        self.remedy = remedy
        self.reason = reason
        where = f"{location}\n  " if location else ""
        advice = f"\n  {remedy}" if remedy else ""
        super().__init__(f"{where}{what}{advice}")


class BackendCompilerFailed(FusewrightError):
    """A backend raised while compiling a captured graph; `__cause__` holds its exception."""

    def __init__(self, backend: str, stage: str, location: Location | None, detail: str) -> None:
        self.backend = backend
        self.stage = stage
        self.location = location
        where = f" at {location}" if location else ""
        super().__init__(f"backend {backend!r} failed in stage {stage}{where}\n  {detail}")


class MalformedProgram(FusewrightError):
    """IR that breaks an invariant: the verifier's message with the neighbourhood of the text."""


class InvalidBytecode(FusewrightError):
    """Bytecode that CPython could not run, found while assembling: an error of whoever wrote it."""


class DataDependent(FusewrightError):
    """A result that depends on the values of a tensor was needed while only its geometry is
    known.
    """


class UnsupportedOperator(FusewrightError):
    """An operator, or a kind of tensor, that cannot be traced."""
