"""Statements under capture: closures, signatures, generators, loops, assignments, patterns. Each
function is captured as one graph and agrees with itself when run.
"""

# ruff: noqa (these programs are meant to use every form that the language has)

from __future__ import annotations

import collections.abc
import functools
from collections.abc import Callable
from typing import Any

import torch

from tests.programs import corpus
from tests.programs.classes import Frozen, Level, Measured, Ordered, Vector

X = torch.arange(3.0)
WATERMARK = 3


program = corpus.program((X,))


# -- functions ------------------------------------------------------------------------------------


@program
def nested_closures(x):
    total = 0

    def outer(n):
        count = n

        def inner(by):
            nonlocal total, count
            total += by
            count *= 2
            return count

        return inner

    first, second = outer(1), outer(10)
    values = [first(1), first(2), second(3)]
    functions = [lambda i=i: x + i for i in range(2)]
    late = [lambda: i for i in range(3)]
    return values, total, [f() for f in functions], [f() for f in late]


@program
def signatures(x):
    def f(a, /, b, c=3, *args, d, e=5, **kwargs):
        return a, b, c, args, d, e, kwargs

    def g(*, k):
        return k

    found = [f(1, 2, d=4), f(1, 2, 3, 4, 5, d=6, z=7), f(*(1, 2), **{"d": x, "a": 8})]
    for call in (lambda: f(1), lambda: g(1), lambda: f(1, 2, d=1, b=2), lambda: g(k=1, j=2)):
        try:
            call()
        except TypeError as error:
            found.append(str(error))
    return found, f.__defaults__, f.__kwdefaults__, f.__name__


def appended(item, items=[]):
    items.append(item)
    return list(items)


@program
def decorated(x):
    def trace(prefix):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                log.append(prefix + function.__name__)
                return function(*args, **kwargs)

            wrapper.calls = 0
            return wrapper

        return decorate

    log = []

    @trace("call ")
    def double(n):
        return n * 2

    double.calls += 1
    return x * double(3), log, double.__name__, double.calls, double.__wrapped__(1)


@functools.singledispatch
def describe(value):
    return "object"


@describe.register(int)
def _(value):
    return "int"


@describe.register
def _(value: list):
    return f"list of {len(value)}"


@program
def single_dispatch(x):
    return x, describe(1), describe([1]), describe("a"), Measured(1).show(1), Measured(1).show("a")


@program
def partial_functions(x):
    p = functools.partial(lambda a, b, c=0: a + b * c, x, c=2)
    q = functools.partial(p, 3)
    return p(1), q(), q(c=5), p.func.__name__, p.args[0] is x, q.keywords, functools.partial(p)(1)


# -- generators and iteration ---------------------------------------------------------------------


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


@program
def user_iterators(x):
    a, *b = Countdown(4)
    c = Countdown(3)
    found = [i for i in c if i]
    return x, a, b, found, sum(Countdown(4)), 2 in Countdown(3), list(zip(Countdown(2), "ab"))


class Pair(collections.abc.Sequence):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return (1, 2)[index]


@program
def a_generator_left_inside_try(x):
    """What `Sequence.__iter__` waits in catches IndexError alone: dropping it runs nothing."""
    return x + next(iter(Pair()))


@program
def assignments(x):
    a = b = [1]
    (c, d), *e = (1, 2), 3, 4
    [f, g] = "ab"
    h: int = 5
    a[0], a = 7, [8]
    i = j = 0
    i, k = 1, i
    t = {"n": {"m": [1, 2, 3]}}
    t["n"]["m"][1] += 10
    t["n"]["m"][::2] = [9, 9]
    del t["n"]["m"][0], b[:]
    x = x + (n := len(e))
    (lambda: 0).attribute = 1
    return a, b, c, d, e, f, g, h, i, j, k, t, x, n, 1 < n < 3 < 4, n is not None


# -- match ----------------------------------------------------------------------------------------


@program
def all_patterns(x):
    def classify(v):
        match v:
            case 0 | 1:
                return "small"
            case -5 | 2.5 | "text" | b"b" | None | True:
                return "literal"
            case Level.HIGH:
                return "value"
            case []:
                return "empty"
            case [1, *rest] if len(rest) > 2:
                return "guarded", rest
            case [a, (b, *_), c] | (a, {"b": b}, c):
                return a, b, c
            case {"kind": "point", "x": px, **others}:
                return px, others
            case {}:
                return "mapping"
            case Vector(0, y) | Vector(y=y, x=1):
                return "vector", y
            case str() as s if s.startswith("z"):
                return s
            case int(n) | float(n):
                return n
            case (Frozen(a=1) | Ordered()) as found:
                return type(found).__name__
            case tuple(items):
                return items
            case _:
                return "other"

    return x, [
        classify(v)
        for v in (
            0, -5, "text", None, 5, [], [1, 2, 3, 4], [1, (2, 3), 4], (1, {"b": 2}, 3),
            {"kind": "point", "x": 1, "z": 2}, {"q": 1}, Vector(0, 8), Vector(1, 9), "zz", 77, 1.5,
            Frozen(1), Ordered(3), (), (1, 2), "qq", {1}, x.shape,
        )
    ]  # fmt: skip
