"""Whole statements under capture: classes, descriptors, exceptions, generators, closures, patterns,
context managers. Each function is captured as one graph and agrees with itself when run; those at
the end break the graph for the reason that stands beside them.
"""

# ruff: noqa

from __future__ import annotations

import abc
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import logging
import math
import operator
import os
import random
import threading
import time
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import api
from fusewright.errors import Unsupported
from tests.capture.agreement import assert_same, check

X = torch.arange(3.0)
PROGRAMS: list[Callable[..., Any]] = []
BREAKS: list[tuple[str, Callable[..., Any]]] = []
LOCK = threading.Lock()
LOG = logging.getLogger("tests.capture")
WATERMARK = 3


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one tensor that is captured whole."""
    PROGRAMS.append(function)
    return function


def breaks(reason: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function of one tensor that breaks the graph."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        BREAKS.append((reason, function))
        return function

    return enter


# -- descriptors and attributes -------------------------------------------------------------------


class Typed:
    """A data descriptor that keeps its value in the instance's dictionary."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else instance.__dict__[self.name]

    def __set__(self, instance, value):
        if not isinstance(value, int):
            raise TypeError(f"{self.name} must be int")
        instance.__dict__[self.name] = value

    def __delete__(self, instance):
        del instance.__dict__[self.name]


class Shouting:
    """A descriptor that an instance's own attribute hides."""

    def __get__(self, instance, owner):
        return f"{owner.__name__}!"


class Described:
    count = Typed()
    name = Shouting()

    def __init__(self, count):
        self.count = count


@program
def data_descriptors(x):
    d = Described(3)
    d.count += 1
    try:
        d.count = "a"
    except TypeError as error:
        message = str(error)
    before = d.count
    del d.count
    return x * before, message, hasattr(d, "_count"), isinstance(Described.count, Typed)


@program
def other_descriptors(x):
    d = Described(1)
    first = d.name
    d.name = "mine"
    return x, first, d.name, Described.name, vars(d)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class SlottedChild(Slotted):
    __slots__ = ("c",)


@program
def slots(x):
    s = Slotted(x)
    s.b = 2
    t = SlottedChild(1)
    t.c = s.b
    del s.b
    try:
        s.b
    except AttributeError as error:
        kind = type(error)
    try:
        s.z = 1
    except AttributeError as error:
        text = str(error)
    return s.a + t.a + t.c, kind, text, hasattr(s, "b")


class Recording:
    def __init__(self):
        object.__setattr__(self, "log", [])

    def __setattr__(self, name, value):
        self.log.append(("set", name))
        super().__setattr__(name, value)

    def __delattr__(self, name):
        self.log.append(("del", name))
        object.__delattr__(self, name)

    def __getattribute__(self, name):
        if name.startswith("virtual"):
            return name.upper()
        return super().__getattribute__(name)

    def __getattr__(self, name):
        return f"no {name}"


@program
def attribute_hooks(x):
    r = Recording()
    r.a = x
    r.b = 1
    del r.b
    return r.a + 1, r.log, r.b, r.virtual_thing, r.q, setattr(r, "k", 2), r.k


class Measured:
    unit = "m"

    def __init__(self, length):
        self._length = length

    @property
    def length(self):
        "How long."
        return self._length

    @length.setter
    def length(self, value):
        self._length = value

    @length.deleter
    def length(self):
        self._length = None

    @functools.cached_property
    def area(self):
        return self._length**2

    @classmethod
    def unit_of(cls):
        return cls.unit

    @staticmethod
    def double(v):
        return v * 2

    half = functools.partialmethod(lambda self, by, v: v / by, 2)

    @functools.singledispatchmethod
    def show(self, value):
        return "other"

    @show.register
    def _(self, value: int):
        return "int"


@program
def properties(x):
    m = Measured(x)
    m.length = m.length + 1
    area = m.area
    again = m.area is area
    del m.length
    try:
        Measured(1).double.nothing
    except AttributeError:
        pass
    return area, again, m.length, m.unit_of(), Measured.unit_of(), m.double(3), m.half(x)


@program
def property_without_setter(x):
    class Fixed:
        @property
        def value(self):
            return x

    f = Fixed()
    try:
        f.value = 3
    except AttributeError as error:
        return f.value, type(error), str(error)


# -- classes --------------------------------------------------------------------------------------


class Base:
    registry: list[str] = []

    def __init_subclass__(cls, /, tag="none", **rest):
        super().__init_subclass__(**rest)
        cls.tag = tag

    def who(self):
        return ["Base"]


class Left(Base):
    def who(self):
        return ["Left", *super().who()]


class Right(Base, tag="right"):
    def who(self):
        return ["Right", *super().who()]


class Both(Left, Right):
    def who(self):
        return ["Both", *super().who()]

    @classmethod
    def make(cls, *args):
        return super().__new__(cls, *args)


@program
def multiple_inheritance(x):
    return x, Both().who(), Both.__mro__, Right.tag, Both.make().who(), super(Left, Both()).who()


class Meta(type):
    def __call__(cls, *args, **kwargs):
        instance = super().__call__(*args, **kwargs)
        instance.made_by = cls.__name__
        return instance

    def __getattr__(cls, name):
        return f"class attribute {name}"

    def __len__(cls):
        return 7

    def __iter__(cls):
        return iter([1, 2])

    def __contains__(cls, item):
        return item == 3

    def __getitem__(cls, item):
        return item

    def __instancecheck__(cls, instance):
        return instance == 5

    @property
    def shouted(cls):
        return cls.__name__.upper()


class WithMeta(metaclass=Meta):
    def __init__(self, a):
        self.a = a


@program
def metaclasses(x):
    w = WithMeta(x)
    return (
        w.a + 1, w.made_by, WithMeta.nothing, len(WithMeta), list(WithMeta), 3 in WithMeta,
        WithMeta["k"], isinstance(5, WithMeta), WithMeta.shouted, type(WithMeta) is Meta,
    )  # fmt: skip


@program
def class_statement(x):
    class Local:
        scale = 2

        def __init__(self, v):
            self.v = v

        def scaled(self):
            return self.v * self.scale + x

        @classmethod
        def of(cls, v):
            return cls(v)

        @property
        def twice(self):
            return self.v * 2

    class Child(Local):
        def scaled(self):
            return super().scaled() + 1

    return Child.of(x).scaled(), Local(3).twice, Child.__name__, issubclass(Child, Local)


@program
def dataclass_inside(x):
    @dataclasses.dataclass
    class Pair:
        a: typing.Any
        b: int = 2

        def total(self):
            return self.a + self.b

    p = Pair(x)
    return p.total(), p.b, Pair(1) == Pair(1), [f.name for f in dataclasses.fields(Pair)]


@program
def named_tuple_inside(x):
    P = collections.namedtuple("P", "a b")
    p = P(x, 2)
    return p.a + p.b, p._fields, p[1]


@program
def enum_inside(x):
    class Mode(enum.Enum):
        FAST = 1
        SLOW = 2

    mode = Mode(2)
    return x * mode.value, mode is Mode.SLOW, mode.name, len(Mode), [m.name for m in Mode]


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    def double(self):
        return self.area() * 2


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side


@program
def abstract_classes(x):
    try:
        Shape()
    except TypeError as error:
        text = str(error)
    return Square(x).double(), text, isinstance(Square(1), Shape)


class Vector:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(self.x + other.x, self.y + other.y)

    def __radd__(self, other):
        return Vector(other + self.x, other + self.y)

    def __iadd__(self, other):
        self.x += other
        return self

    def __neg__(self):
        return Vector(-self.x, -self.y)

    def __getitem__(self, key):
        return (self.x, self.y)[key]

    def __setitem__(self, key, value):
        setattr(self, "xy"[key], value)

    def __delitem__(self, key):
        self[key] = 0

    def __iter__(self):
        yield self.x
        yield self.y

    def __reversed__(self):
        return iter((self.y, self.x))

    def __len__(self):
        return 2

    def __contains__(self, v):
        return v == self.y

    def __bool__(self):
        return self.y != 0

    def __call__(self, v, *, w=0):
        return v + w

    def __eq__(self, other):
        return isinstance(other, Vector) and self.y == other.y

    def __hash__(self):
        return hash(self.y)

    def __lt__(self, other):
        return self.y < other.y

    def __repr__(self):
        return f"Vector({self.y})"

    def __format__(self, spec):
        return f"<{spec}:{self.y}>"

    def __matmul__(self, other):
        return "matmul"

    def __index__(self):
        return self.y

    def __float__(self):
        return float(self.y)

    def __round__(self, n=None):
        return (n, self.y)

    def __divmod__(self, other):
        return "divmod", other

    def __enter__(self):
        return self.y

    def __exit__(self, *args):
        return True

    def __missing__(self, key):
        return key


@program
def special_methods(x):
    v = Vector(x, 2)
    w = v + Vector(1, 1)
    u = 5 + v
    v += 1
    v[1] = 4
    y, four = v
    del w[1]
    return (
        w.x, u.y, v.x, -v == Vector(0, -4), y, four, v[0], list(reversed(v)), len(v), 4 in v,
        bool(w), v(1, w=2), v @ 1, [10, 11, 12, 13, 14][v], float(v), round(v, 3), divmod(v, 2),
        f"{v:spec} {v!r} {v}", {v: 1}[Vector(0, 4)], len({v, Vector(1, 4)}), str(v), repr([v]),
        sorted([Vector(0, 3), Vector(0, 1)])[0].y, max(Vector(0, 1), Vector(0, 9)).y,
        range(10)[v], "%s %r" % (v, v), int(v), math.floor(2.5), v != w, operator.index(v),
    )  # fmt: skip


@functools.total_ordering
class Version:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


@program
def total_ordering(x):
    return x, Version(1) <= Version(2), Version(1) >= Version(2), Version(3) > Version(2)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: typing.Any = None


@dataclasses.dataclass(slots=True, order=True)
class Ordered:
    rank: int
    tags: list = dataclasses.field(default_factory=list, compare=False)


@dataclasses.dataclass
class Computed:
    base: typing.Any
    factor: dataclasses.InitVar[int] = 2
    total: typing.Any = dataclasses.field(init=False, repr=False)
    kind: typing.ClassVar[str] = "computed"

    def __post_init__(self, factor):
        self.total = self.base * factor


@dataclasses.dataclass(kw_only=True)
class Inherited(Computed):
    extra: int = 0


@program
def dataclasses_of_all_kinds(x):
    f = Frozen(1, x)
    try:
        f.a = 2
    except dataclasses.FrozenInstanceError as error:
        text = str(error)
    o = Ordered(2)
    o.tags.append(x)
    c = Computed(x, factor=3)
    i = Inherited(base=1, extra=4)
    return (
        f.b + f.a, text, Ordered(1) < o, o, c, c.total, i.total + i.extra, hash(Frozen(1)),
        dataclasses.replace(f, a=5), dataclasses.asdict(Ordered(1, [2])), Frozen(1) == Frozen(1),
        dataclasses.astuple(Frozen(1)), [q.name for q in dataclasses.fields(c)], Computed.kind,
        repr(Frozen(1, "z")), {Frozen(1): 2}[Frozen(1)], sorted([Ordered(2), Ordered(1)])[0].rank,
    )  # fmt: skip


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flag(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Fruit(str, enum.Enum):
    APPLE = "apple"

    @property
    def loud(self):
        return self.value.upper()

    def eat(self, x):
        return x + len(self.value)


@program
def enums(x):
    return (
        x * Level.HIGH, Level.LOW + 1, Level(5) is Level.HIGH, Flag.A | Flag.B, Flag.A in Flag(3),
        Fruit.APPLE.loud, Fruit("apple").eat(x), Fruit.APPLE == "apple", [m.name for m in Level],
        len(Level), Level["LOW"], Fruit.APPLE in {Fruit.APPLE: 1}, sorted(Level), Level.LOW < 3,
        isinstance(Level.LOW, int), f"{Level.LOW}", Fruit.APPLE.upper(),
    )  # fmt: skip


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


@program
def recursion(x):
    def depth(tree):
        return 1 + max((depth(t) for t in tree), default=0)

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    return x * depth([[], [[]]]), even(10), odd(7)


@program
def global_statement(x):
    global WATERMARK
    before = WATERMARK
    WATERMARK = before + 1
    del WATERMARK
    try:
        WATERMARK
    except NameError as error:
        text = str(error)
    WATERMARK = before
    return x, text


@program
def imports_inside(x):
    import math as m
    import os.path
    from collections import OrderedDict
    from collections import deque as d
    from math import pi

    try:
        from math import nothing
    except ImportError as error:
        text = type(error).__name__
    try:
        import no_such_module_at_all
    except ModuleNotFoundError as error:
        name = error.name
    return x * m.floor(pi), OrderedDict(a=1), d([1])[0], os.path.join("a", "b"), text, name


@program
def unbound_variables(x):
    def f(flag):
        if flag:
            value = 1
        try:
            return value
        except UnboundLocalError as error:
            return str(error)

    def g():
        try:
            return later
        except NameError as error:
            return str(error)
        later = 1

    return x, f(True), f(False), g()


# -- generators and iteration ---------------------------------------------------------------------


@program
def generator_protocol(x):
    def accumulate():
        total = 0
        try:
            while True:
                try:
                    got = yield total
                except ValueError as error:
                    got = len(str(error))
                total += got
        except GeneratorExit:
            log.append("closed")
            raise
        finally:
            log.append("finally")

    log = []
    g = accumulate()
    out = [next(g), g.send(5), g.throw(ValueError("abc")), g.send(1)]
    g.close()
    try:
        next(g)
    except StopIteration:
        out.append("stopped")
    return x * out[3], out, log


@program
def yield_from(x):
    def inner():
        got = yield 1
        try:
            yield got
        except KeyError:
            yield "caught"
        return "result"

    def outer():
        result = yield from inner()
        yield result
        yield from [7, 8]
        return "end"

    g = outer()
    found = [next(g), g.send("sent"), g.throw(KeyError), next(g), next(g), next(g)]
    try:
        next(g)
    except StopIteration as stop:
        found.append(stop.value)
    return x, found


@program
def generator_expressions(x):
    data = [1, 2, 3]
    g = (x + i for i in data)
    data = []
    first = next(g)
    return first, sum(i for i in range(4)), list(g)[0], dict((i, i * i) for i in range(3))


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


@program
def loops_with_else(x):
    log = []
    for i in range(3):
        if i == 5:
            break
    else:
        log.append("for else")
    while True:
        break
    else:
        log.append("never")
    for i, (a, b) in enumerate([(1, 2), (3, 4)]):
        for c in range(b):
            if c > a:
                break
            if c == i:
                continue
            log.append((i, c))
        else:
            log.append("inner else")
    return x + i, log


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


@program
def finally_blocks(x):
    log = []

    def f(kind):
        for i in range(2):
            try:
                if kind == "return":
                    return i
                if kind == "continue":
                    continue
                if kind == "break":
                    break
                if kind == "raise":
                    raise ValueError(i)
            except ValueError:
                return "caught"
            else:
                log.append("else")
            finally:
                log.append((kind, i))
        return "end"

    def overriding():
        try:
            raise KeyError
        finally:
            return "swallowed"

    return x, [f(k) for k in ("return", "continue", "break", "raise", "")], overriding(), log


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
        f(1), g["WATERMARK"], "PROGRAMS" in g, vars(v)["y"], v.__class__.__name__, type(v) is Vector,
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
    LOG.info("hello %s", 1)
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
    random.seed(3)
    y = x + 1
    return y * random.random()


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


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_program(function: Any) -> None:
    with torch.no_grad():
        check(function, X)


@pytest.mark.parametrize(("reason", "function"), BREAKS, ids=lambda p: getattr(p, "__name__", ""))
def test_break(reason: str, function: Any) -> None:
    with pytest.raises(Unsupported) as refused:
        api.compile(function, backend="eager", fullgraph=True)(X)
    assert refused.value.reason == reason, refused.value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = api.compile(function, backend="eager")
        for _ in range(2):
            assert_same(compiled(X), function(X))
