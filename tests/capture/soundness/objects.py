"""Objects of user-written classes: attributes, descriptors, special methods, and their classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.capture.soundness.cases import Kind


def _make(**attributes: Any) -> Callable[[], Any]:
    """A maker of an instance of a new class each time, with bases and a property."""

    def make() -> Any:
        class Base:
            inherited = 3

            def method(self, x: Any) -> Any:
                return x + self.a

            def overridden(self, x: Any) -> Any:
                return x + 1

        class Middle(Base):
            pass

        class Thing(Middle):
            shared = 2

            def overridden(self, x: Any) -> Any:
                return super().overridden(x) * 2

            @property
            def doubled(self) -> Any:
                return self.a * 2

            @staticmethod
            def static(x: Any) -> Any:
                return x * 3

            @classmethod
            def of_class(cls, x: Any) -> Any:
                return x * cls.shared

            def __call__(self, x: Any) -> Any:
                return x - self.a

        thing = Thing()
        thing.__dict__.update({"a": 1, "b": 2} | attributes)
        return thing

    return make


def _base(thing: Any) -> Any:
    return type(thing).__mro__[2]


def _middle(thing: Any) -> Any:
    return type(thing).__mro__[1]


class DataDescriptor:
    """A descriptor that wins over the instance's dictionary."""

    def __get__(self, instance: Any, owner: Any) -> int:
        return 21

    def __set__(self, instance: Any, value: Any) -> None:
        raise AttributeError("read only")


class PlainDescriptor:
    """A descriptor that the instance's dictionary wins over."""

    def __get__(self, instance: Any, owner: Any) -> int:
        return 31


OBJECT = Kind(
    name="object",
    make=_make(),
    reads={
        "attribute": lambda v, x: x * v.a,
        "other attribute": lambda v, x: x * v.b,
        "class attribute": lambda v, x: x * v.shared,
        "class attribute by type": lambda v, x: x * type(v).shared,
        "inherited": lambda v, x: x * v.inherited,
        "method": lambda v, x: v.method(x),
        "bound method": lambda v, x: (lambda m: m(x))(v.method),
        "overridden": lambda v, x: v.overridden(x),
        "property": lambda v, x: x * v.doubled,
        "static": lambda v, x: v.static(x),
        "class method": lambda v, x: v.of_class(x),
        "call": lambda v, x: v(x),
        "getattr default": lambda v, x: x * getattr(v, "absent", 5),
        "hasattr": lambda v, x: x + 1 if hasattr(v, "absent") else x - 1,
        "hasattr present": lambda v, x: x + 1 if hasattr(v, "a") else x - 1,
        "try": lambda v, x: _try_attribute(v, x),
        "vars": lambda v, x: [(k, x * i) for k, i in vars(v).items()],
        "dict in": lambda v, x: x + 1 if "absent" in v.__dict__ else x - 1,
        "dict get": lambda v, x: x * v.__dict__.get("absent", 4),
        "type name": lambda v, x: (x, type(v).__name__),
        "isinstance": lambda v, x: x + 1 if isinstance(v, Other) else x - 1,
        "isinstance of itself": lambda v, x: x + 1 if isinstance(v, type(v)) else x - 1,
        "truth": lambda v, x: x + 1 if v else x - 1,
        "equals": lambda v, x: x + 1 if v == 3 else x - 1,
        "is None": lambda v, x: x + 1 if v is None else x - 1,
        "length": lambda v, x: _try(lambda: len(v), x),
        "iterate": lambda v, x: _try(lambda: [i for i in v], x),  # noqa: C416
        "item": lambda v, x: _try(lambda: v[0], x),
        "contains": lambda v, x: _try(lambda: 3 in v, x),
        "add": lambda v, x: _try(lambda: v + 1, x),
        "reflected add": lambda v, x: _try(lambda: 1 + v, x),
        "compare": lambda v, x: _try(lambda: v < 1, x),
        "not equals": lambda v, x: x + 1 if v != 3 else x - 1,
        "negative": lambda v, x: _try(lambda: -v, x),
        "with": lambda v, x: _try(lambda: _enter(v), x),
        "as a key": lambda v, x: x * {v: 3}[v],
        "format": lambda v, x: (x, f"{v.a}"),
        "int": lambda v, x: _try(lambda: int(v), x),
        "index": lambda v, x: _try(lambda: [5, 6, 7][v], x),
    },
    others={
        "other attribute": _make(a=4),
        "more attributes": _make(absent=4),
        "of another class": lambda: Other(),
        "None": lambda: None,
        "tensor attribute": _make(a=torch.tensor(3.0)),
    },
    changes={
        "a": lambda v: setattr(v, "a", 3),
        "a to float": lambda v: setattr(v, "a", 1.0),
        "a deleted": lambda v: delattr(v, "a"),
        "b": lambda v: setattr(v, "b", 3),
        "absent appears": lambda v: setattr(v, "absent", 3),
        "absent on class": lambda v: setattr(type(v), "absent", 3),
        "absent on base": lambda v: setattr(_base(v), "absent", 3),
        "shared": lambda v: setattr(type(v), "shared", 4),
        "shared on instance": lambda v: setattr(v, "shared", 4),
        "inherited": lambda v: setattr(_base(v), "inherited", 4),
        "inherited nearer": lambda v: setattr(_middle(v), "inherited", 4),
        "method": lambda v: setattr(_base(v), "method", lambda self, x: x * 7),
        "method nearer": lambda v: setattr(_middle(v), "method", lambda self, x: x * 7),
        "method on instance": lambda v: setattr(v, "method", lambda x: x * 7),
        "method's code": lambda v: setattr(
            _base(v).method, "__code__", (lambda self, x: x * 8).__code__
        ),
        "overridden on base": lambda v: setattr(_base(v), "overridden", lambda s, x: x * 7),
        "overridden between": lambda v: setattr(_middle(v), "overridden", lambda s, x: x * 7),
        "property": lambda v: setattr(type(v), "doubled", property(lambda self: 9)),
        "property to value": lambda v: setattr(type(v), "doubled", 9),
        "property deleted": lambda v: delattr(type(v), "doubled"),
        "static": lambda v: setattr(type(v), "static", staticmethod(lambda x: x * 9)),
        "static to method": lambda v: setattr(type(v), "static", lambda self, x: x * 9),
        "class method": lambda v: setattr(type(v), "of_class", classmethod(lambda c, x: x * 9)),
        "call": lambda v: setattr(type(v), "__call__", lambda self, x: x * 9),
        "data descriptor over a": lambda v: setattr(type(v), "a", DataDescriptor()),
        "property over a": lambda v: setattr(type(v), "a", property(lambda self: 41)),
        "property over a on base": lambda v: setattr(_base(v), "a", property(lambda self: 41)),
        "plain descriptor under a": lambda v: setattr(type(v), "a", PlainDescriptor()),
        "descriptor becomes data": lambda v: setattr(type(v), "shared", DataDescriptor()),
        "__getattr__": lambda v: setattr(type(v), "__getattr__", lambda self, name: 51),
        "__getattribute__": lambda v: setattr(
            type(v), "__getattribute__", lambda self, name: _getattribute(self, name)
        ),
        "class": lambda v: setattr(v, "__class__", Other),
        "bases": lambda v: setattr(type(v), "__bases__", (OtherBase,)),
        "class name": lambda v: setattr(type(v), "__name__", "Renamed"),
        "dict replaced": lambda v: setattr(v, "__dict__", {"a": 6, "b": 7}),
        "__bool__": lambda v: setattr(type(v), "__bool__", lambda self: False),
        "__bool__ on base": lambda v: setattr(_base(v), "__bool__", lambda self: False),
        "__len__": lambda v: setattr(type(v), "__len__", lambda self: 0),
        "__eq__": lambda v: setattr(type(v), "__eq__", lambda self, other: True),
        "__ne__": lambda v: setattr(type(v), "__ne__", lambda self, other: False),
        "__iter__": lambda v: setattr(type(v), "__iter__", lambda self: iter([1, 2])),
        "__getitem__": lambda v: setattr(type(v), "__getitem__", lambda self, i: [1, 2][i]),
        "__contains__": lambda v: setattr(type(v), "__contains__", lambda self, i: True),
        "__add__": lambda v: setattr(type(v), "__add__", lambda self, other: 61),
        "__radd__": lambda v: setattr(type(v), "__radd__", lambda self, other: 62),
        "__lt__": lambda v: setattr(type(v), "__lt__", lambda self, other: True),
        "__neg__": lambda v: setattr(type(v), "__neg__", lambda self: 63),
        "__int__": lambda v: setattr(type(v), "__int__", lambda self: 64),
        "__index__": lambda v: setattr(type(v), "__index__", lambda self: 2),
        "__enter__": lambda v: (
            setattr(type(v), "__enter__", lambda self: 65),
            setattr(type(v), "__exit__", lambda self, *error: None),
        ),
        "__setattr__": lambda v: setattr(type(v), "__setattr__", lambda self, n, i: None),
    },
    unread=(
        ("attribute", "b"),
        ("attribute", "absent appears"),
        ("attribute", "shared"),
        ("other attribute", "a"),
        ("class attribute", "a"),
        ("class attribute", "absent on class"),
        ("hasattr", "a"),
        ("getattr default", "a"),
        ("type name", "a"),
        ("method", "b"),
        ("static", "a"),
        ("is None", "a"),
        ("dict in", "a"),
    ),
)


def _getattribute(self: Any, name: str) -> Any:
    return 71 if name == "a" else object.__getattribute__(self, name)


def _enter(value: Any) -> Any:
    with value as entered:
        return entered


def _try(function: Any, x: Any) -> Any:
    try:
        return x, function()
    except (TypeError, IndexError, AttributeError) as error:
        return x - 1, type(error).__name__


def _try_attribute(value: Any, x: Any) -> Any:
    try:
        return x * value.absent
    except AttributeError:
        return x - 1


class OtherBase:
    """A class that may become a base."""

    inherited = 81

    def method(self, x: Any) -> Any:
        return x * 82

    def overridden(self, x: Any) -> Any:
        return x * 83


class Other:
    """A class of the same shape as the others."""

    shared = 5
    inherited = 5
    a = 91

    def method(self, x: Any) -> Any:
        return x + 92

    def overridden(self, x: Any) -> Any:
        return x + 93

    doubled = 94

    def static(self, x: Any) -> Any:
        return x + 95

    of_class = static

    def __call__(self, x: Any) -> Any:
        return x + 96


def _slotted() -> Any:
    class Slotted:
        __slots__ = ("a", "b")

    made = Slotted()
    made.a = 1
    return made


SLOTTED = Kind(
    name="slotted object",
    make=_slotted,
    reads={
        "attribute": lambda v, x: x * v.a,
        "absent": lambda v, x: x * getattr(v, "b", 5),
        "hasattr": lambda v, x: x + 1 if hasattr(v, "b") else x - 1,
        "try": lambda v, x: _try(lambda: v.b, x),
    },
    changes={
        "a": lambda v: setattr(v, "a", 3),
        "a to tensor": lambda v: setattr(v, "a", torch.tensor(2.0)),
        "a deleted": lambda v: delattr(v, "a"),
        "b appears": lambda v: setattr(v, "b", 3),
        "slot becomes property": lambda v: setattr(type(v), "a", property(lambda self: 7)),
    },
    unread=(("attribute", "b appears"),),
)


def _with_getattr() -> Any:
    class Forwards:
        def __init__(self) -> None:
            self.table = {"found": 2}

        def __getattr__(self, name: str) -> Any:
            try:
                return self.table[name]
            except KeyError:
                raise AttributeError(name) from None

    return Forwards()


FORWARDING = Kind(
    name="forwarding object",
    make=_with_getattr,
    reads={
        "found": lambda v, x: x * v.found,
        "absent": lambda v, x: x * getattr(v, "absent", 5),
        "hasattr": lambda v, x: x + 1 if hasattr(v, "absent") else x - 1,
    },
    changes={
        "found": lambda v: v.table.__setitem__("found", 3),
        "found on instance": lambda v: setattr(v, "found", 4),
        "found on class": lambda v: setattr(type(v), "found", 5),
        "absent appears": lambda v: v.table.__setitem__("absent", 3),
        "absent on instance": lambda v: setattr(v, "absent", 6),
        "absent on class": lambda v: setattr(type(v), "absent", 7),
        "__getattr__ replaced": lambda v: setattr(type(v), "__getattr__", lambda s, n: 8),
        "__getattr__ deleted": lambda v: delattr(type(v), "__getattr__"),
        "table replaced": lambda v: setattr(v, "table", {"found": 9}),
    },
    unread=(("found", "absent appears"),),
)


def _class_with_metaclass() -> Any:
    class Meta(type):
        shared = 2

        @property
        def computed(cls) -> Any:
            return cls.own * 2

        def __len__(cls) -> int:
            return 3

    class Base(metaclass=Meta):
        inherited = 5

    class Thing(Base):
        own = 1

        def __init__(self, a: Any = 1) -> None:
            self.a = a

        @classmethod
        def of_class(cls, x: Any) -> Any:
            return x * cls.own

        @staticmethod
        def static(x: Any) -> Any:
            return x + 1

        def method(self, x: Any) -> Any:
            return x - 2

    return Thing


CLASS = Kind(
    name="class",
    make=_class_with_metaclass,
    reads={
        "attribute": lambda v, x: x * v.own,
        "inherited": lambda v, x: x * v.inherited,
        "of metaclass": lambda v, x: x * v.shared,
        "metaclass property": lambda v, x: x * v.computed,
        "length": lambda v, x: x * len(v),
        "class method": lambda v, x: v.of_class(x),
        "static": lambda v, x: v.static(x),
        "function": lambda v, x: v.method(None, x),
        "instance": lambda v, x: x * v(3).a,
        "instance default": lambda v, x: x * v().a,
        "name": lambda v, x: (x, v.__name__),
        "hasattr": lambda v, x: x + 1 if hasattr(v, "absent") else x - 1,
        "vars": lambda v, x: x + 1 if "absent" in vars(v) else x - 1,
        "issubclass": lambda v, x: x + 1 if issubclass(v, Other) else x - 1,
        "mro": lambda v, x: (x, [c.__name__ for c in v.__mro__]),
        "isinstance": lambda v, x: x + 1 if isinstance(3, v) else x - 1,
        "is": lambda v, x: x + 1 if v is Other else x - 1,
    },
    others={"another": lambda: Other, "int": lambda: int},
    changes={
        "own": lambda v: setattr(v, "own", 4),
        "own deleted": lambda v: delattr(v, "own"),
        "inherited": lambda v: setattr(v.__mro__[1], "inherited", 4),
        "inherited nearer": lambda v: setattr(v, "inherited", 4),
        "of metaclass": lambda v: setattr(type(v), "shared", 4),
        "of metaclass hidden": lambda v: setattr(v, "shared", 4),
        "metaclass property": lambda v: setattr(type(v), "computed", property(lambda c: 9)),
        "metaclass __len__": lambda v: setattr(type(v), "__len__", lambda c: 9),
        "metaclass __call__": lambda v: setattr(type(v), "__call__", lambda c, *a: Other()),
        "metaclass __getattr__": lambda v: setattr(type(v), "__getattr__", lambda c, n: 9),
        "metaclass __instancecheck__": lambda v: setattr(
            type(v), "__instancecheck__", lambda c, i: True
        ),
        "metaclass data descriptor": lambda v: setattr(type(v), "own", DataDescriptor()),
        "class method": lambda v: setattr(v, "of_class", classmethod(lambda c, x: x * 9)),
        "static": lambda v: setattr(v, "static", staticmethod(lambda x: x * 9)),
        "method": lambda v: setattr(v, "method", lambda self, x: x * 9),
        "__init__": lambda v: setattr(v, "__init__", lambda self, a=7: setattr(self, "a", 8)),
        "__init__ default": lambda v: setattr(v.__init__, "__defaults__", (6,)),
        "__new__": lambda v: setattr(v, "__new__", staticmethod(lambda c, *a: Other())),
        "__setattr__": lambda v: setattr(
            v, "__setattr__", lambda s, n, i: object.__setattr__(s, n, 9)
        ),
        "absent appears": lambda v: setattr(v, "absent", 1),
        "name": lambda v: setattr(v, "__name__", "Renamed"),
        "bases": lambda v: setattr(v, "__bases__", (type(v)("New", (), {"inherited": 9}),)),
    },
    unread=(
        ("attribute", "absent appears"),
        ("attribute", "method"),
        ("static", "own"),
        ("is", "own"),
    ),
)


KINDS = (OBJECT, SLOTTED, FORWARDING, CLASS)
