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

import pytest
import torch

from fusewright import api
from fusewright.capture.directives import graph_break
from tests.capture.agreement import assert_same

X = torch.arange(12.0).reshape(3, 4) / 5 - 1
PROGRAMS: list[Callable[..., Any]] = []
NATIVE: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one tensor that breaks the graph."""
    PROGRAMS.append(function)
    return function


def native(function: Callable[..., Any]) -> Callable[..., Any]:
    """One whose frame runs as it is: an unset variable of its own would have come from outside."""
    NATIVE.append(function)
    return function


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
def globals_and_deletion(x):
    global _made
    _made = 4
    graph_break()
    _made += 1
    x = x * _made
    graph_break()
    del _made
    try:
        _made
    except NameError as error:
        return x, str(error), type(error).__name__


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


@program
def items_and_names_deleted(x):
    d, l, y = {"a": x, "b": 1}, [1, 2, 3, 4], x
    graph_break()
    del d["b"], l[1:3], y
    graph_break()
    del l[0]
    try:
        y
    except UnboundLocalError as error:
        return d, l, str(error)


# -- expressions ----------------------------------------------------------------------------------


@program
def walrus_in_a_comprehension(x):
    graph_break()
    y = [z for i in range(4) if (z := i * 2) > 2]
    graph_break()
    return x * sum(y) + z


@program
def starred(x):
    graph_break()
    a, *b, c = [1, 2, 3, 4]
    d = [*b, *range(2)]
    graph_break()
    e = {**{"k": 1}, "x": x}
    (f, *g), h = (x, 2, 3), 4
    return x * a + sum(b) * c + sum(d), e, f, g, h


@program
def chained_comparisons(x):
    n = x.shape[0]
    graph_break()
    return x + (1 if 1 < n <= 3 else 2), 0 < n < 2 < 5, (y := n) == 3 != 4


@program
def formatted(x):
    n = 3
    graph_break()
    return x, f"{n=} {n + 1=:>4} {x.shape=}", f"{n!r:>{n}} {'q':*^5}"


# -- statements -----------------------------------------------------------------------------------


@program
def matched(x):
    for c in [1, (1, 2), {"a": 1, "b": 2}, [1, 2, 3], "s", None, 2.5, complex(1, 2)]:
        graph_break()
        match c:
            case int(n) if n > 0:
                x = x + n
            case (a, b):
                x = x + a * b
            case {"a": v, **rest}:
                x = x * v + len(rest)
            case [a, *r]:
                graph_break()
                x = x + len(r)
            case str() | bytes():
                x = x - 1
            case None:
                x = x * 2
            case complex(real=real):
                x = x * real
            case _:
                x = x / 2
    return x


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
def generators(x):
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


@program
def views_that_exist(x):
    known = len(KEYS), "a" in KEYS, ("a", 1) in ITEMS, list(reversed(VALUES))
    return x * 2, known, [*KEYS], sorted(ITEMS), KEYS & {"a"}, sum(VALUES)


@program
def pickles_of_objects_met_twice(x):
    text, inner = "text", [1]
    return x + 1, pickle.dumps((text, text)), pickle.dumps([inner, inner])


def run(function: Callable[..., Any], compiled: Callable[..., Any]) -> tuple[Any, Any]:
    """Two calls of each, the second compiled one without anything to capture."""
    expected = [function(X.clone()) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return [compiled(X.clone()) for _ in range(2)], expected


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda each: each.__name__)
def test_it_is_what_it_is_in_eager(function: Callable[..., Any]) -> None:
    found, expected = run(function, api.compile(function, backend="eager"))
    assert_same(found, expected)


@pytest.mark.parametrize("function", NATIVE, ids=lambda each: each.__name__)
def test_it_is_what_it_is_in_eager_since_its_frame_is(function: Callable[..., Any]) -> None:
    expected = [function(X.clone()) for _ in range(2)]
    compiled = api.compile(function, backend="eager")
    with pytest.warns(RuntimeWarning, match="running eagerly"):
        found = [compiled(X.clone()) for _ in range(2)]
    assert_same(found, expected)
