"""A break deep inside is found once, and not once more from each call around it; where a call does
not break after all, it is one graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from fusewright.capture import frame_capture, reasons
from fusewright.capture.breaks.predicted import PredictedBreak
from fusewright.capture.reasons import Reason
from fusewright.errors import Location, TracedCall, Unsupported
from tests.capture.reporting import compiled, graphs

X = torch.arange(6.0).reshape(2, 3)


@fusewright.disable
def positions(x: torch.Tensor) -> torch.Tensor:
    return x.nonzero()


def innermost(x: torch.Tensor) -> torch.Tensor:
    x = x * 3
    rows = positions(x)
    return x[rows[:, 0]] + 1


def inner(x: torch.Tensor) -> torch.Tensor:
    return innermost(x + 1) * 2


def outer(x: torch.Tensor) -> torch.Tensor:
    x = x - 1
    return inner(x.relu()) / 4


def outermost(x: torch.Tensor) -> torch.Tensor:
    return outer(x * 2).sum(0)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The function that each attempt to trace begins with."""
    found: list[str] = []

    class CountingMachine(frame_capture.Machine):
        def run(self, frame: Any) -> Any:
            if not self.frames:
                found.append(frame.code.co_name)
            return super().run(frame)

    monkeypatch.setattr(frame_capture, "Machine", CountingMachine)
    return found


def breaks(function: Callable[..., Any], *args: Any) -> list[str]:
    """The source lines of the calls from the compiled frame to each break."""
    found = fusewright.explain(function, backend="eager")(*args).breaks
    return ["".join(each.stack.splitlines(keepends=True)[1::2]) for each in found]


def test_only_the_outermost_call_is_traced_to_where_it_fails(attempts: list[str]) -> None:
    function = compiled(outermost)
    assert torch.equal(function(X), outermost(X))
    calls = ["outermost", "outermost", "outer", "inner", "innermost"]
    assert attempts == [*calls, *calls[:0:-1]]
    assert graphs(function) == [1, 2, 1, 1, 3, 1, 1, 1]


def test_each_call_tells_of_the_break_as_it_sees_it() -> None:
    lines = [
        "    return outer(x * 2).sum(0)\n",
        "    return inner(x.relu()) / 4\n",
        "    return innermost(x + 1) * 2\n",
        "    rows = positions(x)\n",
    ]
    assert breaks(outermost, X) == ["".join(lines[depth:]) for depth in range(4)]


def adds_or_reads(x: torch.Tensor, reads: bool) -> torch.Tensor:
    y = x + x.max().item() if reads else x.exp() + 1
    return y * 2


def test_a_call_that_takes_another_way_is_one_graph() -> None:
    class Calls:
        """Something that capture does not look into, and that calls twice."""

        @staticmethod
        @fusewright.disable(recursive=False)
        def both(x: torch.Tensor, reads: bool) -> torch.Tensor:
            return adds_or_reads(x, not reads) + adds_or_reads(x, reads)

    def program(x: torch.Tensor) -> torch.Tensor:
        return Calls.both(x, True) + 1

    def reads(x: torch.Tensor) -> torch.Tensor:
        return adds_or_reads(x, True) + 1

    function = compiled(program)
    assert torch.equal(function(X), program(X))
    assert graphs(function)[0] == 3
    assert breaks(reads, X)[1:] == ["    y = x + x.max().item() if reads else x.exp() + 1\n"]


def scaled(x: torch.Tensor, number: float) -> torch.Tensor:
    return x * 2 if number < 2 else x


def test_what_comes_before_the_call_foretells_nothing() -> None:
    """What is drawn cannot be passed on, so that the program breaks where it is drawn."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return scaled(x + 1, random.random()) - 3

    function = compiled(program)
    assert torch.equal(function(X), program(X))
    assert graphs(function) == [1, 2]


def checked(x: torch.Tensor) -> torch.Tensor:
    assert (x > -100).all()
    return x + 1


def test_a_check_inside_a_call_around_which_a_graph_writes_is_one_graph() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return checked(x) * 2

    function = compiled(program)
    assert torch.equal(function(X.clone()), program(X.clone()))
    assert graphs(function) == [1, 4, 1]


def interrupted(reason: Reason) -> Unsupported:
    """The error of a chain of calls."""
    functions = (outermost, outer, inner, innermost)
    calls = [TracedCall(function.__code__, Location("", 1), 5, 5) for function in functions]
    return Unsupported("", reason=reason.name, calls=calls)


def test_a_capture_in_between_is_passed_over() -> None:
    predicted = PredictedBreak()
    predicted.expect(interrupted(reasons.TENSOR_VALUE))
    found = predicted.take(inner.__code__)
    assert found is not None and [call.code.co_name for call in found.calls] == [
        "inner",
        "innermost",
    ]


def test_a_prediction_is_over_when_something_else_is_captured() -> None:
    predicted = PredictedBreak()
    predicted.expect(interrupted(reasons.TENSOR_VALUE))
    assert predicted.take(scaled.__code__) is None
    assert predicted.take(inner.__code__) is None


@pytest.mark.parametrize("reason", [reasons.CLASS_MADE, reasons.NOT_KNOWN, reasons.TOO_DEEP])
def test_what_capture_did_before_foretells_nothing(reason: Reason) -> None:
    predicted = PredictedBreak()
    predicted.expect(interrupted(reason))
    assert predicted.take(inner.__code__) is None
