"""Compare programs whose graphs break with eager: results, reports, exceptions with their lines."""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from tests.capture.agreement import assert_same

OUTPUT: list[object] = []


def report(*values: object) -> None:
    """Something that capture does not look into."""
    OUTPUT.append([v.tolist() if isinstance(v, torch.Tensor) else repr(v) for v in values])


report = fusewright.disable(report)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return fusewright.compile(function, backend="eager")


def graphs(function: Any) -> list[int]:
    """The number of operators of each graph compiled so far."""
    return [
        sum(made.operators.values())
        for made in fusewright.compilations(function)
        if sum(made.operators.values())
    ]


def outcome(function: Callable[..., Any], *args: Any, file: str = "") -> tuple[Any, ...]:
    """What a call returns, or raises and from which lines of a file, and what it reported."""
    OUTPUT.clear()
    try:
        result = function(*args)
    except Exception as error:
        lines = [
            (frame.name, frame.lineno)
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == file
        ]
        result = (type(error), str(error), lines)
    return result, list(OUTPUT)


def agrees(function: Callable[..., Any], *calls: tuple[Any, ...]) -> list[int]:
    """Compare two rounds of calls with eager; the operators of the graphs."""
    target = compiled(function)
    file = inspect.unwrap(function).__code__.co_filename
    for args in (*calls, *calls):
        found = outcome(target, *copy.deepcopy(args), file=file)
        assert_same(found, outcome(function, *copy.deepcopy(args), file=file))
    return graphs(target)


def frames(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The frames of this folder in the traceback of a call, with the chain of causes below them."""
    try:
        function(*arguments)
    except Exception as error:
        return chain(error)
    pytest.fail("nothing was raised")


def chain(error: BaseException | None) -> list[Any]:
    found: list[Any] = []
    while error is not None:
        lines = [
            (frame.name, frame.lineno)
            for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename).parent == Path(__file__).parent and frame.name != "frames"
        ]
        found.append((type(error), error.args, lines))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found
