"""Guard soundness: what a case is, how all cases are enumerated, and how one is checked.

A case reads a value of some kind in some way (`Read`), from some place (`sites`), compiles, changes
the world (`Change`), and calls again: both calls must agree with the function itself.

    plain.py, objects.py, callables.py, tensors.py   what there is, how it is read and changed
    sites.py                                         from where the compiled function gets it
    state.py                                         global state of torch
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fusewright import api
from tests.capture.agreement import assert_same
from tests.capture.soundness.sites import SITES, Site

Make = Callable[[], Any]
Read = Callable[[Any, torch.Tensor], Any]
"""What the compiled function does with the value; a Python function, captured with the rest."""

Change = Callable[[Any], Any]
"""Changes a value in place; what it returns is not used."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of value: how to make one, the ways to read it, and the ways in which it changes."""

    name: str
    make: Make
    reads: dict[str, Read]
    others: dict[str, Make] = field(default_factory=dict)
    """Makers of values that may come to stand in the value's place."""

    changes: dict[str, Change] = field(default_factory=dict)
    unread: Sequence[tuple[str, str]] = ()
    """Pairs of a read and a change that it does not see: no reason to capture again."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind, read in one way from one place, and one change."""

    kind: Kind
    read: str
    site: str
    change: str
    replaces: bool
    """Whether the change puts another value in the value's place."""

    @property
    def name(self) -> str:
        """What a test report calls it."""
        verb = "becomes" if self.replaces else "change"
        return f"{self.kind.name}-{self.read}-{self.site}-{verb} {self.change}"

    @property
    def is_unread(self) -> bool:
        """Whether the change must not lead to a second capture."""
        return not self.replaces and (self.read, self.change) in self.kind.unread


def all_cases(kinds: Sequence[Kind]) -> Iterator[Case]:
    """Every kind, read and change in every place: many thousands."""
    for kind, site in itertools.product(kinds, SITES):
        yield from _changes(kind, itertools.repeat(site))


def chosen_cases(kinds: Sequence[Kind]) -> Iterator[Case]:
    """Every kind, read and change once, the places in turn."""
    places = itertools.cycle(SITES)
    for kind in kinds:
        yield from _changes(kind, places)


def _changes(kind: Kind, places: Iterator[str]) -> Iterator[Case]:
    for read in kind.reads:
        for replaces, table in ((True, kind.others), (False, kind.changes)):
            for change in table:
                yield Case(
                    kind=kind, read=read, site=next(places), change=change, replaces=replaces
                )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call gave: a result, or an exception's class and arguments."""

    result: Any
    error: tuple[type, str] | None

    @classmethod
    def of(cls, function: Callable[..., Any], site: Site) -> Outcome:
        """Call a function with the arguments of a site."""
        try:
            return cls(function(*site.arguments, **site.keywords), None)
        except Exception as error:
            return cls(None, (type(error), str(error)))


def assert_agree(found: Outcome, expected: Outcome, when: str) -> None:
    """The same result, down to what autograd knows of tensors, or the same exception."""
    assert found.error == expected.error, f"{when}: {found.error} is not {expected.error}"
    assert _metadata(found.result) == _metadata(expected.result), when
    assert_same(_with_data(found.result), _with_data(expected.result), when)


def _metadata(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return (
            *(type(result), result.shape, result.dtype, result.device, result.layout),
            *(result.requires_grad, result.is_conj(), result.is_inference()),
        )
    if isinstance(result, (tuple, list)):
        return [_metadata(item) for item in result]
    return None


def _with_data(result: Any) -> Any:
    """A result whose tensors all have elements that can be compared."""
    if isinstance(result, torch.Tensor):
        if result.device.type == "meta":
            return torch.empty_like(result, device="cpu").fill_(0)
        return result.to_dense() if result.is_sparse else result
    if type(result) in (tuple, list):
        return type(result)(_with_data(item) for item in result)
    return result


@dataclass(frozen=True, slots=True)
class Report:
    """What a case showed beside agreement."""

    captures: int
    """Captures in all."""

    refused: bool
    """Whether nothing was compiled: something in the function cannot be captured, or it raises."""


CALLS_BEFORE = ("compiling", "under guards", "under guards that held before")
"""Guards that held leave a journal, which the next call reads instead."""


def check(case: Case) -> Report:
    """Run a case; AssertionError where the compiled function disagrees with the function."""
    value = case.kind.make()
    with SITES[case.site](case.kind.reads[case.read], value) as site:
        compiled = api.compile(site.function, backend="eager")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for when in CALLS_BEFORE:
                assert_agree(Outcome.of(compiled, site), Outcome.of(site.function, site), when)
            with contextlib.suppress(TypeError):  # A module's parameter takes parameters only.
                _apply(case, site, value)
            assert_agree(Outcome.of(compiled, site), Outcome.of(site.function, site), "after")
        assert_no_defects(compiled)
        return Report(compiled.compiler.capture_count, not api.compilations(compiled))


def _apply(case: Case, site: Site, value: Any) -> None:
    if case.replaces:
        site.replace(case.kind.others[case.change]())
    else:
        case.kind.changes[case.change](value)


def assert_no_defects(compiled: Any) -> None:
    """No graph break, and no call run as it is, was due to an error of capture itself."""
    for event in compiled.compiler.events:
        assert "defect of fusewright" not in str(event), str(event)
