"""An exception that leaves a compiled function shows the frames and lines that it shows in eager.

What a graph raises while it runs: `test_graph_failures.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from tests.capture.reporting import frames, report

X = torch.arange(3.0)
MODES = {"no break": lambda *values: None, "break": report}


def in_its_own_line(x, note):
    y = x + 1
    note(1)
    z = {}["missing"]
    return y + z


def divides(n):
    return 1 // n


def in_an_inlined_function(x, note):
    y = x * 2
    note(1)
    n = len(y) - 3
    return divides(
        n,
    )


def in_a_method(x, note):
    class Thing:
        def __init__(self, n):
            self.n = n

        def value(self):
            note(2)
            return divides(self.n)

    thing = Thing(0)
    y = x + 1
    note(1)
    return y, thing.value()


def raised(x, note):
    y = x + 1
    note(1)
    if y.shape[0] == 3:
        raise ValueError("three")


def raised_again(x, note):
    try:
        note(1)
        divides(0)
    except ZeroDivisionError:
        x = x + 1
        note(2)
        raise


def raised_from(x, note):
    try:
        divides(0)
    except ZeroDivisionError as error:
        note(1)
        raise ValueError("wrapped") from error


def raised_in_a_handler(x, note):
    try:
        note(1)
        {}["a"]
    except KeyError:
        x = x + 1
        note(2)
        divides(0)


def through_finally(x, note):
    log = []
    try:
        note(1)
        divides(0)
    finally:
        log.append(x + 1)
        note(2)


def through_with(x, note):
    with contextlib.nullcontext():
        y = x + 1
        note(1)
        divides(0)
    return y


@contextlib.contextmanager
def managed(note):
    note(5)
    yield
    note(6)


def through_a_manager(x, note):
    with managed(note):
        x = x + 1
        note(1)
        divides(0)


def in_a_loop(x, note):
    for n in (2, 1, 0):
        x = x + 1
        note(n)
        divides(n)


def in_a_generator(x, note):
    def generate():
        for n in (1, 0):
            yield divides(n)

    y = x + 1
    note(1)
    return y, list(generate())


def in_a_suspended_generator(x, note):
    def generate():
        for n in (1, 0):
            yield divides(n)

    generator = generate()
    first = next(generator)
    note(first)
    return x + 1, next(generator)


def in_a_comprehension(x, note):
    y = x + 1
    note(1)
    return y, [divides(n) for n in (1, 0)]


def in_a_lambda(x, note):
    function = lambda n: divides(n)  # noqa: E731
    y = x + 1
    note(1)
    return y, function(0)


def in_an_operator_of_torch(x, note):
    y = x + 1
    note(1)
    return y @ torch.ones(
        5,
        5,
    )


def by_an_assertion(x, note):
    y = x + 1
    note(1)
    dimensions = len(y.shape)
    assert dimensions == 2, "matrices only"


def unbound(x, note):
    y = x + 1
    note(1)
    if y is None:
        z = 1
    return z


def recursive(x, note, depth=3):
    note(depth)
    if depth == 0:
        return divides(0)
    return recursive(x + 1, note, depth - 1)


PROGRAMS = [
    in_its_own_line, in_an_inlined_function, in_a_method, raised, raised_again, raised_from,
    raised_in_a_handler, through_finally, through_with, through_a_manager, in_a_loop,
    in_a_generator, in_a_suspended_generator, in_a_comprehension, in_a_lambda,
    in_an_operator_of_torch, by_an_assertion, unbound, recursive,
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_frames_and_lines_are_those_of_eager(program: Callable[..., Any], mode: str) -> None:
    note = MODES[mode]
    target = fusewright.compile(program, backend="eager")
    for _ in range(2):
        assert frames(target, X, note) == frames(program, X, note)
