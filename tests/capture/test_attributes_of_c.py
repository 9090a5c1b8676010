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


def dictionaries(x):
    STATE.other = 2
    found = dict(STATE.__dict__), vars(MINE).get("begun"), getattr(STATE, "missing", 7)
    del STATE.other
    return x * found[0]["other"], found, hasattr(MINE, "missing")


def made_here(x):
    made = threading.local()
    made.stack = [x]
    made.stack.append(made.stack[-1] + 1)
    return made.stack.pop()


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
    set_by_a_call, set_here, of_a_subclass, dictionaries, made_here, entry_of_slots,
    names_of_classes, numbers_of_known_tensors, functions_that_transforms_give,
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


def each_thread_its_own(x):
    depth = getattr(STATE, "depth", 0)
    STATE.depth = depth + 1
    STATE.scales.append(depth)
    return x * sum(STATE.scales) + MINE.begun


def test_each_thread_has_its_own() -> None:
    """One graph, whose guards read what the calling thread has."""
    compiled = fusewright.compile(each_thread_its_own, backend="eager", fullgraph=True)
    ready = [threading.Event(), threading.Event()]
    found: list[Any] = [None, None]

    def run(number: int) -> None:
        for function in (compiled, each_thread_its_own):
            STATE.depth, STATE.scales = number * 10, [number]
            MINE.begun = number
            results = []
            for _ in range(4):
                ready[number].wait()
                ready[number].clear()
                results.append(function(X))
                ready[1 - number].set()
            found[number] = (*(found[number] or ()), (results, STATE.depth, list(STATE.scales)))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    ready[0].set()
    for thread in threads:
        thread.join()
    for compiled_results, eager_results in found:
        assert_same(compiled_results, eager_results)


def test_what_a_thread_lacks() -> None:
    compiled = fusewright.compile(
        lambda x: x * getattr(STATE, "factor", 2), backend="eager", fullgraph=True
    )
    STATE.factor = 5
    found = [compiled(X)]
    thread = threading.Thread(target=lambda: found.append(compiled(X)))
    thread.start()
    thread.join()
    found.append(compiled(X))
    del STATE.factor
    found.append(compiled(X))
    for result, factor in zip(found, (5, 2, 5, 2), strict=True):
        assert_same(result, X * factor)
