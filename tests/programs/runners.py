"""Programs of the corpus compiled, with graphs that run eagerly, beside their functions."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from fusewright import api
from fusewright.capture import frame_capture
from tests.capture.agreement import assert_same
from tests.programs.corpus import Program
from tests.programs.differential import breaking_machine

ROUNDS = 2
"""Each call is made so often: the second time with nothing to capture."""


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a call returns or raises, and what it leaves of its arguments."""
    with torch.no_grad():
        try:
            result = function(*arguments)
        except Exception as error:
            result = type(error), str(error)
    return result, arguments


def agrees(compiled: Callable[..., Any], program: Program, *calls: tuple[Any, ...]) -> None:
    """Raises AssertionError unless each call does what the function itself does."""
    for call in calls or program.calls:
        for _ in range(ROUNDS):
            mine, theirs = copy.deepcopy(call), copy.deepcopy(call)
            expected = outcome(program.function, theirs)
            assert_same(outcome(compiled, mine), expected)


def whole(program: Program, **keywords: Any) -> None:
    """Compiled as one graph, which the second round of each call uses again."""
    compiled = api.compile(program.function, backend="eager", fullgraph=True, **keywords)
    agrees(compiled, program)
    assert compiled.compiler.capture_count <= len(program.calls), "captured again"


def in_pieces(program: Program) -> None:
    """Compiled as far as its graph breaks let it."""
    with warnings.catch_warnings():
        if not program.runs_as_written:
            warnings.simplefilter("error", RuntimeWarning)
        agrees(api.compile(program.function, backend="eager"), program)


@contextlib.contextmanager
def breaking_after(step: int) -> Iterator[None]:
    """Every frame that is captured meanwhile breaks its graph after so many instructions."""
    machine = breaking_machine(frame_capture.Machine, step)
    with mock.patch.object(frame_capture, "Machine", machine):
        yield


def broken(program: Program, step: int) -> None:
    """Compiled with a graph break every `step` instructions."""
    with breaking_after(step), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        compiled = api.compile(program.function, backend="eager", recompile_limit=1000)
        agrees(compiled, program)


# -- a changed world ------------------------------------------------------------------------------


def other_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Tensors of other numbers, sizes, strides and types."""
    yield tensor + 1
    yield torch.cat([tensor, tensor]) if tensor.dim() else tensor.reshape(1)
    yield tensor.t().contiguous().t() if tensor.dim() == 2 else tensor.repeat(2)[::2]
    yield tensor.double()
    yield tensor.clone().requires_grad_()


CHANGES: dict[type, Callable[[Any], Any]] = {
    bool: lambda value: not value,
    int: lambda value: value + 1,
    float: lambda value: value + 0.5,
    str: lambda value: value + "z",
    list: lambda value: [*value, 7],
    dict: lambda value: {**value, "another": 7},
}
"""By the class of a global variable: another value of it."""


def changed_globals(function: Callable[..., Any]) -> Iterator[str]:
    """The names of a function's global variables, each while it has another value."""
    variables = function.__globals__
    for name in function.__code__.co_names:
        change = CHANGES.get(type(variables.get(name)))
        if change is not None:
            with mock.patch.dict(variables, {name: change(variables[name])}):
                yield name


def changed(program: Program) -> None:
    """Compiled once, and called in a world that changes: other arguments, other globals."""
    compiled = api.compile(program.function, backend="eager", recompile_limit=50)
    agrees(compiled, program)
    first, *rest = program.calls[0] or (None,)
    if isinstance(first, torch.Tensor):
        for tensor in other_tensors(first):
            agrees(compiled, program, (tensor, *rest))
    for _ in changed_globals(program.function):
        agrees(compiled, program)
    agrees(compiled, program)
