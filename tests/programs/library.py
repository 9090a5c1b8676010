"""Exceptions, context managers and the library under capture: each function is captured as one graph
and agrees with itself when run; those at the end break the graph for the reason beside them.
"""

# ruff: noqa (these programs are meant to use every form that the language has)

from __future__ import annotations

import collections
import contextlib
import copy
import logging
import math
import os
import random
import threading
import time
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from tests.programs import corpus
from tests.programs.classes import Both, Frozen, Ordered, Vector

X = torch.arange(3.0)
LOCK = threading.Lock()
LOG = logging.getLogger("tests.capture")
WATERMARK = 3

program = corpus.program((X,))


def breaks(reason: str) -> Callable[[corpus.Function], corpus.Function]:
    """A function of one tensor that breaks the graph."""
    return corpus.program((X,), breaks=reason)


# -- exceptions -----------------------------------------------------------------------------------


class Custom(Exception):
    def __init__(self, code, *, detail=None):
        super().__init__(f"code {code}")
        self.code = code
        self.detail = detail

    def __str__(self):
        return f"Custom<{self.code}>"


class Narrow(Custom):
    pass


@program
def custom_exceptions(x):
    try:
        raise Narrow(3, detail=x)
    except Custom as error:
        return error.detail + error.code, str(error), error.args, type(error), repr(ValueError(1))


@program
def exception_chains(x):
    log = []
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        log.append((type(error.__cause__), error.__cause__ is error.__context__))
        log.append(error.__suppress_context__)
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            [][0]
    except IndexError as error:
        log.append((type(error.__context__), error.__cause__))
    try:
        raise ValueError from None
    except ValueError as error:
        log.append((error.__suppress_context__, error.__cause__))
    try:
        error
    except UnboundLocalError as unbound:
        log.append(str(unbound))
    try:
        try:
            raise Custom(1)
        except Custom:
            raise
    except Custom as again:
        log.append(again.code)
    return x, log


@breaks("unknown-opcode")
def exception_groups(x):
    log = []
    try:
        raise ExceptionGroup("many", [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as group:
        log.append([str(e) for e in group.exceptions])
    except* (TypeError, KeyError) as group:
        log.append(len(group.exceptions))
    return x, log


@program
def assertions_and_errors(x):
    found = []
    for wrong in (
        lambda: [1][5], lambda: {}["k"], lambda: int("z"), lambda: None.nothing, lambda: len(3),
        lambda: 1 + "a", lambda: undefined_name, lambda: (1, 2).append(3), lambda: 1 / 0,
        lambda: [].pop(), lambda: {1: 2}.popitem().x, lambda: next(iter([])), lambda: "a" * "b",
        lambda: float("q"), lambda: chr(-1), lambda: math.sqrt(-1), lambda: iter(5), lambda: 5(),
        lambda: setattr(3, "a", 1), lambda: {[]: 1}, lambda: "a".join([1]), lambda: max([]),
        lambda: int([]), lambda: range(0, 1, 0), lambda: (a for a in 5), lambda: [*5],
        lambda: dict(**{"a": 1}, a=2), lambda: Both(1), lambda: Vector(1),
    ):  # fmt: skip
        try:
            wrong()
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    try:
        assert len(found) == 0, f"{len(found)} found"
    except AssertionError as error:
        found.append(str(error))
    return x, found


# -- context managers -----------------------------------------------------------------------------


@contextlib.contextmanager
def noted(log, name, swallow=False):
    log.append("enter " + name)
    try:
        yield name
    except ValueError as error:
        log.append("error " + str(error))
        if not swallow:
            raise
    finally:
        log.append("leave " + name)


class Closing:
    def __init__(self, log):
        self.log = log

    def close(self):
        self.log.append("closed")


@program
def context_managers(x):
    log = []
    with noted(log, "a", swallow=True) as a, contextlib.closing(Closing(log)):
        raise ValueError("inside")
    with contextlib.ExitStack() as stack:
        stack.enter_context(noted(log, "b"))
        stack.callback(log.append, "called")
        stack.push(lambda *error: log.append(error[0] is None))
    with contextlib.suppress(KeyError, IndexError):
        [][1]
    with contextlib.nullcontext(x) as same:
        y = same + 1
    try:
        with noted(log, "c"):
            raise ValueError("out")
    except ValueError as error:
        log.append(str(error))
    for _ in range(2):
        with noted(log, "d"):
            continue
    return y, a, log


@noted([], "decorator")
def decorated_by_manager(x):
    return x * 2


class Swallowing:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.seen = kind, str(value), traceback is None
        return True


@program
def exit_arguments(x):
    with Swallowing() as s:
        raise KeyError("k")
    with Swallowing() as t:
        x = x + 1
    return x, s.seen[:2], t.seen


@program
def generator_as_manager(x):
    with noted([], "z") as name:
        return x, name


# -- the library ----------------------------------------------------------------------------------


@program
def copies(x):
    shared = [x.shape]
    v = Vector([shared], shared)
    shallow, deep = copy.copy(v), copy.deepcopy({"a": v, "b": v, "s": shared})
    return (
        shallow.x is v.x, deep["a"] is deep["b"], deep["a"].y is deep["s"], deep["a"].y is v.y,
        copy.copy(Frozen(1, 2)), copy.deepcopy(Ordered(1, [[2]])), copy.copy({1: [2]}),
    )  # fmt: skip


@program
def weak_references(x):
    v = Vector(x, 1)
    reference = weakref.ref(v)
    return reference() is v, reference().y


@program
def typing_at_run_time(x):
    def f(a: int, b: "list[str]" = None) -> typing.Optional[int]:
        c: dict[str, int] = {}
        return a

    return x, typing.cast(str, f(1)), isinstance(1, int | str), f.__annotations__.get("a")


@program
def introspection(x):
    def f(a, b=2):
        c = 3
        return sorted(locals())

    v = Vector(x, 2)
    g = globals()
    return (
        f(1), g["WATERMARK"], "LOCK" in g, vars(v)["y"], v.__class__.__name__, type(v) is Vector,
        f.__code__.co_argcount, f.__name__, Vector.__name__, v.__dict__.keys() == {"x", "y"},
        callable(f), callable(v), hasattr(v, "zz"), v.y, id(v) == id(v), v.__module__,
        "y" in dir(v), issubclass(Narrow, Exception), f.__qualname__.split(".")[-1],
    )  # fmt: skip


@program
def visited_by_identity(x):
    seen = set()
    nodes = [[1], [1], [2]]
    nodes.append(nodes[0])
    unique = []
    for node in nodes:
        if id(node) in seen:
            continue
        seen.add(id(node))
        unique.append(node)
    memo = {id(nodes[0]): "first"}
    return x, len(unique), memo[id(nodes[3])], id(nodes[1]) in memo


class Stack(list):
    def push(self, item):
        self.append(item)
        return self

    @property
    def top(self):
        return self[-1]

    def __getitem__(self, index):
        return ("got", super().__getitem__(index))


class Lower(dict):
    def __getitem__(self, key):
        return super().__getitem__(key.lower())

    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)

    def __contains__(self, key):
        return super().__contains__(key.lower())


class Name(str):
    def greet(self):
        return f"hello {self}"


class Celsius(float):
    def __new__(cls, value, unit="C"):
        self = super().__new__(cls, value)
        self.unit = unit
        return self


@program
def builtin_subclasses(x):
    s = Stack([1]).push(x).push(2)
    low = Lower()
    low["A"] = 1
    name = Name("bob")
    temperature = Celsius(2.5)
    return (
        s.top, s[0], len(s), list(s), low["A"], "a" in low, list(low), name.greet(), name.upper(),
        temperature + 1, temperature.unit, isinstance(name, str), len(name), x * temperature,
    )  # fmt: skip


@program
def json_like_walk(x):
    def walk(value):
        if isinstance(value, collections.abc.Mapping):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)) and not isinstance(value, str):
            return type(value)(map(walk, value))
        return value * 2

    return walk({"a": [1, (x, "s")], "b": collections.OrderedDict(c=2.5)})


# -- breaks ---------------------------------------------------------------------------------------


@breaks("outside-world")
def printing(x):
    print("value", x.shape)
    return x + 1


@breaks("outside-world")
def logs(x):
    LOG.warning("hello %s", 1)
    return x + 1


@breaks("outside-world")
def warns(x):
    with warnings.catch_warnings():
        pass
    return x + 1


@breaks("outside-world")
def warning(x):
    y = x + 1
    warnings.warn("careful", stacklevel=2)
    return y


@breaks("outside-world")
def timing(x):
    start = time.perf_counter()
    return x + 1, start > 0


@breaks("outside-world")
def sleeping(x):
    time.sleep(0)
    return x + 1


@breaks("outside-world")
def randomness(x):
    y = x + 1
    return y * (2 if random.random() < 5 else 3)


@program
def environment(x):
    return x + len(os.environ.get("HOME_OF_NOBODY", "abc"))


@breaks("outside-world")
def files(x):
    with open(os.devnull) as file:
        return x + len(file.read())


@breaks("outside-world")
def locks(x):
    y = x + 1
    with LOCK:
        y = y * 2
    return y


@breaks("outside-world")
def evaluated(x):
    return eval("1 + 1") + x


@breaks("outside-world")
def inputs(x):
    frame = __import__("sys")._getframe()
    return x + len(frame.f_code.co_name)
