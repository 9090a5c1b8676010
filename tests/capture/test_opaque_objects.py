"""Objects that capture does not know inside out: they are passed on, stored, compared by
identity within one graph; only an operation on one breaks it.
"""

from __future__ import annotations

import array
import collections
import contextvars
import datetime
import decimal
import fractions
import functools
import io
import itertools
import operator
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from fusewright import api
from tests.capture.agreement import assert_same

X = torch.arange(3.0)


def generator():
    yield from (1, 2)


class Plain:
    def method(self):
        return 5


def raised() -> Exception:
    try:
        raise ValueError("made", 3)
    except ValueError as error:
        return error


class Text(str):
    pass


OBJECTS: dict[str, Callable[[], Any]] = {
    "object": object,
    "plain": Plain,
    "generator": generator,
    "list iterator": lambda: iter([1, 2]),
    "range iterator": lambda: iter(range(3)),
    "map": lambda: map(str, [1, 2]),
    "zip": lambda: zip([1], [2], strict=True),
    "enumerate": lambda: enumerate([1]),
    "chain": lambda: itertools.chain([1], [2]),
    "count": itertools.count,
    "dict keys": lambda: {"a": 1}.keys(),
    "dict items": lambda: {"a": 1}.items(),
    "mapping proxy": lambda: types.MappingProxyType({"a": 1}),
    "bound builtin": lambda: [].append,
    "bound method": lambda: Plain().method,
    "partial": lambda: functools.partial(max, 1),
    "item getter": lambda: operator.itemgetter(0),
    "lambda": lambda: lambda: 1,
    "builtin": lambda: len,
    "class": lambda: Plain,
    "module": lambda: sys,
    "property": lambda: property(lambda self: 1),
    "static method": lambda: staticmethod(len),
    "class method": lambda: classmethod(len),
    "cell": lambda: types.CellType(3),
    "code": lambda: generator.__code__,
    "frame": lambda: sys._getframe(),
    "traceback": lambda: raised().__traceback__,
    "exception": raised,
    "exception group": lambda: ExceptionGroup("g", [ValueError(1)]),
    "lock": threading.Lock,
    "thread local": threading.local,
    "context variable": lambda: contextvars.ContextVar("v"),
    "weak reference": lambda: weakref.ref(Plain),
    "weak dict": weakref.WeakKeyDictionary,
    "pattern": lambda: re.compile("a"),
    "match": lambda: re.match("a", "a"),
    "bytearray": lambda: bytearray(b"ab"),
    "memory view": lambda: memoryview(b"ab"),
    "array": lambda: array.array("i", [1]),
    "numpy array": lambda: numpy.arange(3),
    "numpy number": lambda: numpy.float32(2),
    "date": lambda: datetime.date(2020, 1, 2),
    "decimal": lambda: decimal.Decimal("1.5"),
    "fraction": lambda: fractions.Fraction(1, 2),
    "text file": io.StringIO,
    "namespace": lambda: types.SimpleNamespace(a=1),
    "subclass of str": lambda: Text("t"),
    "deque iterator": lambda: iter(collections.deque([1])),
    "super": lambda: super(Plain, Plain()),
    "generic alias": lambda: list[int],
    "type of a type": lambda: type(Plain),
    "coroutine function": lambda: compile("async def f(): pass", "<c>", "exec"),
    "slice": lambda: slice(1, None),
    "ellipsis": lambda: ...,
    "torch generator": torch.Generator,
    "stream": lambda: sys.stdout,
}


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_it_is_passed_on_and_stored(make: Callable[[], Any]) -> None:
    def f(x, given, holder):
        holder.kept = given
        table = {"a": given, "b": [given]}
        same = table["b"][0] is holder.kept, given is None, type(given) is type(holder.kept)
        return x + 1, given, table, same

    compiled = api.compile(f, backend="eager", fullgraph=True)
    given = make()
    for _ in range(2):
        holder = types.SimpleNamespace()
        y, back, table, same = compiled(X, given, holder)
        assert_same(y, X + 1)
        assert back is given and holder.kept is given
        assert table["a"] is given and table["b"][0] is given
        assert same == (True, False, True)
    assert compiled.compiler.capture_count == 1


OPERATIONS: list[tuple[Callable[[], Any], Callable[..., Any]]] = [
    (lambda: iter([1, 2, 3]), lambda x, it: (x + next(it), next(it), list(it))),
    (generator, lambda x, it: (x * next(it), next(it, None), next(it, None))),
    (lambda: map(abs, [-1, 2]), lambda x, it: (x + sum(it), list(it))),
    (lambda: itertools.count(3), lambda x, it: (x + next(it), next(it))),
    (lambda: {"a": 1}.items(), lambda x, v: (x + len(v), list(v), ("a", 1) in v)),
    (lambda: types.MappingProxyType({"a": 1}), lambda x, m: (x + m["a"], m.get("b"), list(m))),
    (lambda: [1].append, lambda x, add: (x + 1, add(2))),
    (lambda: operator.itemgetter(1), lambda x, get: (x + get([1, 2]), get("ab"))),
    (raised, lambda x, error: (x + len(error.args), str(error), repr(error), error.args[1])),
    (threading.Lock, lambda x, lock: (x + 1, lock.locked())),
    (lambda: contextvars.ContextVar("v", default=2), lambda x, v: x * v.get()),
    (lambda: bytearray(b"ab"), lambda x, b: (x + len(b), b[0], b.decode(), b.append(3))),
    (lambda: array.array("i", [4]), lambda x, a: (x + a[0], len(a), list(a))),
    (lambda: datetime.date(2020, 1, 2), lambda x, d: (x + d.year, d.isoformat(), d > d)),
    (lambda: decimal.Decimal("1.5"), lambda x, d: (x + float(d), d * 2, str(d))),
    (lambda: fractions.Fraction(1, 2), lambda x, f: (x + float(f), f + 1, f.numerator)),
    (io.StringIO, lambda x, file: (x + 1, file.write("abc"), file.getvalue())),
    (lambda: Text("abc"), lambda x, t: (x + len(t), t.upper(), t == "abc", f"{t}", t[0])),
    (lambda: types.SimpleNamespace(a=1), lambda x, n: (x + n.a, n == n, repr(n))),
    (lambda: property(lambda self: 1), lambda x, p: (x + 1, p.fget(None), p.fset)),
    (lambda: re.match("(a)b", "ab"), lambda x, m: (x + m.end(), m.groups(), m[0])),
    (lambda: sys, lambda x, module: (x + module.maxsize, module.byteorder)),
    (weakref.WeakKeyDictionary, lambda x, d: (x + len(d), d.get(Plain), Plain in d)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "f"), OPERATIONS, ids=range(len(OPERATIONS)))
def test_an_operation_does_what_it_does(make: Callable[[], Any], f: Callable[..., Any]) -> None:
    compiled = api.compile(f, backend="eager")
    mine, theirs = make(), make()
    for _ in range(2):
        results = []
        for call, given in ((compiled, mine), (f, theirs)):
            try:
                results.append(call(X, given))
            except Exception as error:
                results.append((type(error), error.args))
        assert_same(*results)
