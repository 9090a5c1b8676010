"""What the language has, behind a graph break: the frame goes on in a resume function, and must not
show it.
"""

# ruff: noqa (these programs are meant to use every form that the language has)

from __future__ import annotations

import collections
import contextlib
import functools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch

from fusewright.capture.directives import graph_break
from tests.programs import corpus

X = torch.arange(12.0).reshape(3, 4) / 5 - 1

program = corpus.program((X,), breaks="user-break")
native = corpus.program((X,), breaks="user-break", runs_as_written=True)
whole = corpus.program((X,))


# -- variables ------------------------------------------------------------------------------------


@program
def unset_variable_that_a_function_shares(x):
    graph_break()
    try:
        if x.shape[0] == 7:
            v = 1
        f = lambda: v
        return v
    except UnboundLocalError as error:
        return x + 1, str(error), type(error).__name__


@native
def unset_variable_shared_before_the_break(x):
    def f():
        return v

    graph_break()
    try:
        v
    except UnboundLocalError as error:
        r = str(error)
    try:
        f()
    except NameError as error:
        s = str(error), type(error).__name__
    v = x * 2
    return f(), r, s


@native
def variable_that_is_deleted(x):
    v = x + 1
    f = lambda: v
    graph_break()
    y = f()
    del v
    try:
        v
    except UnboundLocalError as error:
        return y, str(error)


@program
def set_after_the_break(x):
    graph_break()

    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    total = x * 2
    graph_break()
    add = lambda y: y + total
    total = total + 1
    graph_break()
    return add(x), even(6), odd(6)


@program
def set_in_a_loop(x):
    for i in range(3):
        graph_break()
        if i:
            x = x + held
        held = x * i
        keep = lambda: held
    graph_break()
    return keep(), x


@program
def handled_exception_that_a_function_shares(x):
    graph_break()
    try:
        raise ValueError("a")
    except ValueError as error:
        graph_break()
        tell = lambda: str(error)
        told = tell()
    graph_break()
    try:
        tell()
    except NameError as gone:
        return x + 1, told, str(gone), type(gone).__name__


@program
def nonlocal_in_a_function_that_breaks(x):
    t = 0

    def add(k):
        nonlocal t
        graph_break()
        t += k
        return t

    x = x * add(2)
    graph_break()
    x = x * add(3)
    return x, t


# -- expressions ----------------------------------------------------------------------------------


# -- statements -----------------------------------------------------------------------------------


@program
def decorated_inside(x):
    def decorator(f):
        @functools.wraps(f)
        def w(*a, **k):
            graph_break()
            return f(*a, **k) + 1

        return w

    @decorator
    def h(y, *, by=2):
        return y * by

    return h(x), h(x, by=3), h.__name__


@program
def generators_that_break(x):
    def g(y):
        try:
            for i in range(3):
                graph_break()
                got = yield y * i
                if got:
                    y = y + got
        finally:
            graph_break()
            seen.append(1)

    seen = []
    graph_break()
    it = g(x)
    first = next(it)
    second = it.send(2)
    graph_break()
    rest = list(it)
    return first, second, rest, seen, sum(g(x))


@program
def delegation(x):
    def inner(y):
        a = yield y
        graph_break()
        b = yield y * a
        return a + b

    def outer(y):
        result = yield from inner(y)
        yield y + result

    it = outer(x)
    next(it)
    graph_break()
    return it.send(2), it.send(3)


@program
def contexts(x):
    @contextlib.contextmanager
    def cm(k):
        graph_break()
        yield k
        graph_break()

    with cm(2) as k, cm(3) as j:
        x = x * k
        graph_break()
        x = x * j
    return x


# -- methods of base classes ----------------------------------------------------------------------


class Counted(list):
    """A list with an `append` of its own."""

    def append(self, item):
        super().append(item)
        super().append("counted")


@program
def method_in_c_that_the_class_overrides(x):
    items = Counted([1])
    append = super(Counted, items).append
    graph_break()
    append(x + 1)
    return [*items]


class Maker(type):
    """A metaclass whose instances have a `__call__` too, which is another."""

    def __call__(cls, *arguments):
        return super().__call__(*arguments)


class Made(metaclass=Maker):
    def __init__(self, x):
        self.x = x * 2
        graph_break()
        self.x = self.x + 1

    def __call__(self, *arguments):
        raise AssertionError("the class was called, not its instance")


@program
def metaclass_call_around_a_break(x):
    return Made(x + 1).x


KEPT = {"a": 1, "b": 2}
KEYS, VALUES, ITEMS = KEPT.keys(), KEPT.values(), KEPT.items()


@whole
def views_that_exist(x):
    known = len(KEYS), "a" in KEYS, ("a", 1) in ITEMS, list(reversed(VALUES))
    return x * 2, known, [*KEYS], sorted(ITEMS), KEYS & {"a"}, sum(VALUES)


@corpus.program((X,), breaks="unknown-callable")
def pickles_of_objects_met_twice(x):
    text, inner = "text", [1]
    return x + 1, pickle.dumps((text, text)), pickle.dumps([inner, inner])
