"""Attributes that code written in C gives: an exception of the program's is never one that tracing
has made up, and its words are CPython's.
"""

from __future__ import annotations

import collections
import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from tests.capture.agreement import assert_same

STATE = threading.local()
X = torch.arange(6.0).reshape(2, 3)


def set_state(value):
    STATE.value = value


def set_by_a_call(x):
    set_state(3)
    return x * STATE.value


def set_here(x):
    STATE.other = 4
    x = x * STATE.other
    del STATE.other
    return x, hasattr(STATE, "other")


class Mine(threading.local):
    kind = 2

    def __init__(self):
        self.begun = 5


MINE = Mine()


def of_a_subclass(x):
    MINE.value = 1
    return x * MINE.value, MINE.kind, MINE.begun


class Slotted:
    __slots__ = ("entry",)


def message(function):
    try:
        function()
    except AttributeError as error:
        return str(error)


def entry_of_slots(x):
    slotted = Slotted()
    texts = [message(lambda: slotted.entry), message(lambda: delattr(slotted, "entry"))]
    slotted.entry = x
    del slotted.entry
    return [*texts, message(lambda: slotted.entry), message(lambda: slotted.other)]


def names_of_classes(x):
    deque, partial = collections.deque(), functools.partial(int)
    return [
        message(lambda: x.shape.missing),
        message(lambda: setattr(x.shape, "missing", 1)),
        message(lambda: x.missing),
        message(lambda: deque.missing),
        message(lambda: partial.missing),
        message(lambda: iter([]).missing),
    ]


def numbers_of_known_tensors(x):
    ones = torch.ones_like(x).sum()
    found = int(ones), float(ones.int()), complex(ones), [0, 1, 2][int(torch.ones(2).sum())]
    return found, [type(number).__name__ for number in found], int(ones) % 5


def cubes(t):
    """Their sum."""
    return (t**3).sum()


def functions_that_transforms_give(x):
    gradient = torch.func.grad(cubes)
    jacobian = torch.func.jacrev(torch.func.hessian(cubes))

    @functools.wraps(gradient)
    def wrapped(t):
        return gradient(t)

    names = gradient.__name__, jacobian.__qualname__, wrapped.__name__, wrapped.__doc__
    return names, gradient.__wrapped__ is cubes, wrapped(x), jacobian(x.flatten()[:2])


PROGRAMS = [
    set_by_a_call, set_here, of_a_subclass, entry_of_slots, names_of_classes,
    numbers_of_known_tensors, functions_that_transforms_give,
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_eager(program: Callable[..., Any], dynamic: bool | None) -> None:
    compiled = fusewright.compile(program, backend="eager", dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for x in (X, X + 1, torch.ones(4)):
            assert_same(compiled(x), program(x))


def test_numbers_of_known_tensors_are_of_their_type() -> None:
    compiled = fusewright.compile(lambda x: (x, int(torch.ones_like(x).sum()) % 5))
    assert type(compiled(X)[1]) is int
