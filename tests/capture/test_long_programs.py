"""Programs that execute more of Python than capture does: the work of capture has a bound, behind
which the function runs as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch

import fusewright
from fusewright.capture import reasons
from tests.capture.agreement import assert_same

X = torch.arange(3.0)
LONGEST = 3_000


def in_its_own_loop(x, log):
    y = x * 2
    total = 0
    for i in range(5000):
        total += i
        if i % 2500 == 0:
            log.append(total)
    return y + total


def in_a_call(x, log):
    def inner(x):
        total = 0
        for i in range(2000):
            total += i
        log.append(total)
        return x + total

    return inner(x * 2) * 3


def in_a_generator(x, log):
    def numbers():
        for i in range(3000):
            yield i * 2
        log.append("end")

    total = 0
    for i in numbers():
        total += i
    return x + total


def in_an_expression(x, log):
    rows = [[1, 2, 3]] * 100
    total = sum(a * b for a in rows[0] for row in rows for b in row if any(c > 2 for c in row))
    log.append(total)
    return x * total


def with_something_that_cannot_be_made(x, log):
    total, numbers = 0, iter(range(1500).__iter__, None)
    for i in range(1500):
        total += i
    log.append(next(numbers) is not None)
    return x + total


PROGRAMS = [
    in_its_own_loop, in_a_call, in_a_generator, in_an_expression,
    with_something_that_cannot_be_made,
]  # fmt: skip


@pytest.fixture(autouse=True)
def executed() -> Iterator[Callable[[], int]]:
    """The captures of a test are short; gives how many instructions they executed in all."""
    from fusewright.capture.interpreter.frame import Frame

    run, count = Frame.run, 0

    def counting(frame: Frame) -> Any:
        nonlocal count
        begin = frame.executed
        try:
            return run(frame)
        finally:
            count += frame.executed - begin

    machine = "fusewright.capture.interpreter.machine.Machine"
    with mock.patch(f"{machine}.longest", LONGEST), mock.patch.object(Frame, "run", counting):
        yield lambda: count


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_capture_ends(program: Callable[..., Any], executed: Callable[[], int]) -> None:
    compiled = fusewright.compile(program, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            found: list[Any] = []
            expected: list[Any] = []
            assert_same(compiled(X, found), program(X, expected))
            assert found == expected
    assert LONGEST <= executed() <= 10 * LONGEST
    assert reasons.TOO_LONG.name in str(fusewright.explain(compiled))


def test_what_comes_before_is_a_graph() -> None:
    compiled = fusewright.compile(in_its_own_loop, backend="eager")
    compiled(X, [])
    assert "1 graph, 1 break" in str(fusewright.explain(compiled))


def test_what_is_called_behind_it_is_compiled() -> None:
    def layer(x):
        return x.sin() + x.cos()

    def program(x):
        total = 0
        for i in range(2000):
            total += i
        for _ in range(3):
            x = layer(x)
        return x + total

    compiled = fusewright.compile(program, backend="eager")
    assert_same(compiled(X), program(X))
    assert "layer" in str(fusewright.explain(compiled))
