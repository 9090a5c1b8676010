"""The exceptions that users meet, each naming what happened, where, and what to do about it."""

from __future__ import annotations

import difflib
import linecache
import os
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Final

from fusewright.records import record

PACKAGE: Final = os.path.join(os.path.dirname(__file__), "")
"""How the names of this package's files begin."""


@record
class Location:
    """A place in the user's program."""

    file: str
    line: int
    text: str = ""
    """The source line, stripped; empty when the file cannot be read."""

    def with_text(self) -> Location:
        """A copy with the source line, where the file can be read."""
        return Location(self.file, self.line, linecache.getline(self.file, self.line).strip())

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place}  {self.text}" if self.text else place


@record
class TracedCall:
    """A call that was being traced."""

    code: CodeType
    location: Location
    """The line of the user's program that was being executed."""

    position: int
    """The instruction being executed, as an index."""

    executed: int
    """How many instructions it had executed, with repetitions, that one not included."""

    def __str__(self) -> str:
        """The call as a traceback prints it."""
        place = (
            f'  File "{self.location.file}", line {self.location.line}, in {self.code.co_name}\n'
        )
        return f"{place}    {self.location.text}\n" if self.location.text else place


class FusewrightError(Exception):
    """Base of every exception that fusewright raises on its own account."""


class Unsupported(FusewrightError):
    """The program does something that cannot be captured; the text says what, where and what to
    change.
    """

    def __init__(
        self,
        what: str,
        location: Location | None = None,
        remedy: str = "",
        reason: str = "",
        calls: Sequence[TracedCall] = (),
    ) -> None:
        self.what = what
        self.location = location
        self.remedy = remedy
        self.reason = reason
        """The reason's name in the catalogue, docs/graph-breaks.md."""
        self.calls = tuple(calls)
        """The calls being traced, from the captured function to the one that cannot be captured."""
        where = f"{location}\n  " if location else ""
        caller = self.caller
        calling = f"called from {caller}\n  " if caller else ""
        advice = f"\n  {remedy}" if remedy else ""
        super().__init__(f"{where}{calling}{what}{advice}")

    @property
    def caller(self) -> Location | None:
        """The outermost line of the program that led to `location`; None where it is that one."""
        places = (call.location for call in self.calls)
        first = next((place for place in places if not place.file.startswith(PACKAGE)), None)
        at = self.location
        is_same = first is None or at is None or (first.file, first.line) == (at.file, at.line)
        return None if is_same else first

    def at(self, location: Location) -> Unsupported:
        """A copy that names another place."""
        return Unsupported(self.what, location, self.remedy, self.reason, self.calls)

    def seen_from(self, depth: int) -> Unsupported:
        """A copy for a capture that begins with the call at `depth`."""
        calls = self.calls[depth:]
        return Unsupported(self.what, self.location, self.remedy, self.reason, calls)


class RaisesInBackward(Unsupported):
    """Eager raises when a program's backward is run, which only its own graph can do; what of the
    program runs forward is right.
    """


class BackendCompilerFailed(FusewrightError):
    """A backend raised while compiling a captured graph; `__cause__` holds its exception."""

    def __init__(self, backend: str, stage: str, location: Location | None, detail: str) -> None:
        self.backend = backend
        self.stage = stage
        self.location = location
        self.detail = detail
        where = f" at {location}" if location else ""
        which = "" if stage == "backend" else f" in stage {stage}"  # one that tells of no stages
        super().__init__(
            f"backend {backend!r} failed{which}{where}\n  {detail}\n"
            "  backend='eager' runs the captured program without it"
        )


class KernelNotCompiled(FusewrightError):
    """One kernel of a graph cannot be compiled, and may not run eagerly; says which, and why."""


class FrozenWeightChanged(FusewrightError):
    """A weight of a model that was compiled with `freeze` has changed since."""

    def __init__(self, weight: str) -> None:
        self.weight = weight
        super().__init__(
            f"{weight} has changed since its values were frozen\n"
            "  what depends on weights is computed anew at each change: compile a model without "
            "options={'freeze': True} while it changes"
        )


class StageDiffers(FusewrightError):
    """A stage of the compiler gives other results than eager; raised by backend `stage_check`."""

    def __init__(self, stage: str, what: str, detail: str) -> None:
        self.stage = stage
        self.what = what
        """Which result, or which input after the call."""
        super().__init__(f"{what} differs from eager first after {stage}\n{detail}")


class RecompileLimitExceeded(FusewrightError):
    """A function that must not run eagerly was compiled as often as its limit allows."""

    def __init__(
        self, function: str, location: Location, option: str, limit: int, failure: str
    ) -> None:
        self.function = function
        self.location = location
        self.option = option
        self.limit = limit
        self.failure = failure
        """The guard that failed most often, in words."""
        super().__init__(
            f"{function}, {location}, was compiled {limit} times, the {option}\n"
            f"  the guard that kept failing: {failure}\n"
            f"  make that value constant, or raise the limit: options={{{option!r}: …}}"
        )


class NothingRaised(FusewrightError):
    """A call returned that capture took to raise an exception; what it did has happened."""

    def __init__(
        self, function: str, location: Location, expected: str, operator: str = ""
    ) -> None:
        self.function = function
        self.location = location
        self.expected = expected
        """The exception that tracing the call ended with."""
        self.operator = operator
        """The operator of somebody's own whose fake implementation raised that; else empty."""
        blame = (
            f"The fake implementation of {operator} raised that where the operator does not: "
            "correct it"
            if operator
            else "That is a defect of fusewright: please report it with this function"
        )
        super().__init__(
            f"{function}, {location}, returned, though tracing it ended with {expected}\n"
            f"  the call ran eagerly. {blame}"
        )


class GraphFailed(FusewrightError):
    """A compiled graph raised where the call, run as it was written, returned; what that did has
    happened.
    """

    def __init__(self, function: str, location: Location, raised: str, where: str) -> None:
        self.function = function
        self.location = location
        self.raised = raised
        """The exception that the graph raised."""
        self.where = where
        """The innermost lines that were running, as a traceback prints them; empty where the
        exception says itself whose fault it is.
        """
        blame = (
            ". Unless memory ran out, that is a defect of the backend: please report it with this "
            "function"
        )
        super().__init__(
            f"the compiled graph of {function}, {location}, raised {raised}\n{where}"
            f"  as written the call returned, and its result is eager's{blame if where else ''}"
        )


class NanFound(FusewrightError):
    """Compiled code has computed NaN, which `check_nan` asks for as an error."""


class WrongLayout(FusewrightError):
    """An input of a compiled graph has another type, size or stride than was compiled for, which
    `check_layouts` looks for.
    """


class PackageRefused(FusewrightError):
    """A package that is not loaded, or a program that no package is made of."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        self.what = what
        super().__init__(f"{path}: {what}")


class WrongArgument(FusewrightError, TypeError):
    """A package is called with an argument that it was not compiled for."""


class UnknownBackend(FusewrightError, ValueError):
    """No backend of this name is registered or installed."""

    def __init__(self, name: str, backends: Iterable[str]) -> None:
        self.name = name
        is_torchs = name == "inductor"
        hint = "that is torch.compile's own; here it is 'fusewright', or no `backend` at all. "
        near = did_you_mean(name, backends)
        super().__init__(f"backend {name!r} is not known; {hint if is_torchs else ''}{near}")


class MalformedProgram(FusewrightError):
    """IR that breaks an invariant: the verifier's message with the neighbourhood of the text."""


class InvalidBytecode(FusewrightError):
    """Bytecode that CPython could not run, found while assembling: an error of whoever wrote it."""


class DataDependent(FusewrightError):
    """A result that depends on the values of a tensor was needed while only its geometry is
    known.
    """


class WrongResult(RuntimeError):
    """A library call returned another size or type than was compiled for, as the operator's fake
    implementation says.
    """

    def __init__(self, what: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(f"{what}; {remedy}")


class UnmetSize(RuntimeError):
    """A size found in data is not the one that an operator behind it was compiled for. Eager may
    still go on: where it is 1, it is broadcast.
    """


class MarkedDimension(FusewrightError):
    """A dimension marked with `mark_dynamic` that the program needs to have one size."""

    def __init__(self, expression: str, size: int, location: Location | None) -> None:
        because = f" because of {location}" if location else ""
        super().__init__(
            f"{expression} is marked as dynamic, but has to be {size}{because}; "
            "remove the mark, or the assumption"
        )


class WrongShape(FusewrightError, ValueError):
    """An argument has another shape than `dynamic_shapes` says."""


class UnsupportedOperator(FusewrightError):
    """An operator, or a kind of tensor, that cannot be traced."""


_PARTIAL_WRITE: Final = "_fusewright_partial_write"


def note_partial_write(error: Exception) -> None:
    """Mark what a graph raised when it had written to some of its inputs already, so that the call
    cannot begin again.
    """
    setattr(error, _PARTIAL_WRITE, True)


def is_partial_write(error: BaseException) -> bool:
    """Whether `error` is marked by `note_partial_write`."""
    return getattr(error, _PARTIAL_WRITE, False)


def counted(number: int, thing: str, plural: str = "s") -> str:
    """A number of things in a message. `plural`: the ending of several."""
    return f"{number} {thing}{'' if number == 1 else plural}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the nearest names, and all of them."""
    ordered = sorted(names)
    near = difflib.get_close_matches(name, ordered, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(candidate) for candidate in near)}? " if near else ""
    return f"{hint}there are: {', '.join(ordered)}"


class OperatorGenerationError(FusewrightError):
    """Variants of operators cannot be generated: a backend's description is wrong, or its files
    cannot be written.
    """

    def __init__(self, what: str, file: str, line: int | None = None) -> None:
        self.file = file
        self.line = line
        """Counted from 1; None where the file as a whole is meant."""
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {what}")
