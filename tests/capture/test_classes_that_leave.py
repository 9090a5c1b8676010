"""Classes made inside a compiled function that leave it: returned, kept, or behind an instance.
Each call makes another class, as eager does, with the same content.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import api
from fusewright.capture.directives import graph_break
from tests.capture.agreement import assert_same

X = torch.arange(3.0)
kept: list[Any] = []


def plain(x: Any, pause: Any) -> Any:
    """A class with a method that has defaults, itself returned."""

    class Factor:
        """What multiplies."""

        k = 3

        def scale(self, y: Any, by: int = 2, *, more: int = 1) -> Any:
            return y * self.k * by + more

    pause()
    return Factor


def closure(x: Any, pause: Any) -> Any:
    """An instance whose methods share a cell with a function outside of the class."""
    total = x * 2

    class Counter:
        def __init__(self) -> None:
            self.start = total + 1

        def add(self, y: Any) -> Any:
            nonlocal total
            total = total + y
            return total

    def read() -> Any:
        return total

    pause()
    return Counter(), read


def inherited(x: Any, pause: Any) -> Any:
    """`super()` needs the cell that holds the class."""

    class Base:
        def who(self) -> list[str]:
            return ["base"]

    class Child(Base):
        def who(self) -> list[str]:
            return [*super().who(), type(self).__name__, __class__.__name__]  # type: ignore[name-defined]

    pause()
    return Child(), Base


def descriptors(x: Any, pause: Any) -> Any:
    """A property with a setter, a class method and a static one."""

    class Box:
        def __init__(self, v: Any) -> None:
            self._v = v

        @property
        def v(self) -> Any:
            """The content."""
            return self._v

        @v.setter
        def v(self, new: Any) -> None:
            self._v = new + 1

        @classmethod
        def of(cls, v: Any) -> Any:
            return cls(v * 2)

        @staticmethod
        def twice(y: Any) -> Any:
            return y * 2

    box = Box.of(x)
    pause()
    box.v = Box.twice(x)
    return box


@dataclasses.dataclass
class Outer:
    """Holds what was made inside."""

    inner: Any


def records(x: Any, pause: Any) -> Any:
    """Data classes: plain, derived, frozen, with slots."""

    @dataclasses.dataclass
    class Pair:
        a: Any
        b: int = 2
        c: list[int] = dataclasses.field(default_factory=list)
        d: Any = dataclasses.field(default_factory=lambda: [x], kw_only=True, compare=False)

        def total(self) -> Any:
            return self.a * self.b + len(self.c)

    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int

    @dataclasses.dataclass(slots=True)
    class Slim(Outer):
        own: int = 4

    pause()
    return Pair(x), Point(1), Slim(x + 1), Pair, Point, Slim


def tuples(x: Any, pause: Any) -> Any:
    """A class of named tuples, written as a class."""

    class Result(typing.NamedTuple):
        value: Any
        count: int = 2

        def product(self) -> Any:
            return self.value * self.count

    pause()
    return Result(x), Result


def enumeration(x: Any, pause: Any) -> Any:
    """Members are found again in the class that is returned beside one."""

    class Mode(enum.Enum):
        FAST = 1
        SLOW = 2

        def other(self) -> Any:
            return Mode.SLOW if self is Mode.FAST else Mode.FAST

    pause()
    return Mode.FAST, Mode, x * Mode.SLOW.value


def abstract(x: Any, pause: Any) -> Any:
    """Which methods are abstract is an attribute of functions."""

    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self) -> Any: ...

    class Square(Shape):
        def area(self) -> Any:
            return x * x

    pause()
    return Square(), Shape


def attributes(x: Any, pause: Any) -> Any:
    """Set after the class was made: an instance of it, a tensor's method, a deletion."""

    class Registry:
        items: typing.ClassVar[list[Any]] = [1]
        gone = 3

    Registry.items.append(2)
    Registry.only = Registry()  # type: ignore[attr-defined]
    Registry.read = lambda self: (x, len(self.items))  # type: ignore[attr-defined]
    del Registry.gone
    pause()
    return Registry


def error(x: Any, pause: Any) -> Any:
    """An exception of a class made inside, which is handled outside."""

    class Stop(Exception):
        def __init__(self, value: Any) -> None:
            super().__init__("stopped")
            self.value = value

    pause()
    return Stop(x)


def in_container(x: Any, pause: Any) -> Any:
    """Instances of a list and of a dict made inside."""

    class Items(list):  # type: ignore[type-arg]
        def total(self) -> Any:
            return sum(self)

    class Table(dict):  # type: ignore[type-arg]
        def __missing__(self, key: str) -> str:
            return key * 2

    items = Items([x, x + 1])
    pause()
    return items, Table(a=x)


def in_global(x: Any, pause: Any) -> Any:
    """Kept in a container that exists."""

    class Kept:
        def value(self) -> Any:
            return x + 5

    kept.append(Kept())
    pause()
    return x + len(kept)


class Asked(type):
    """A metaclass that answers for its classes, and makes them as `type` does."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return len(instance.shape) == cls.dimensions  # type: ignore[attr-defined,no-any-return]


def of_a_metaclass(x: Any, pause: Any) -> Any:
    """A class that its metaclass is called for."""
    made = Asked("made", (), {"dimensions": x.ndim, "__qualname__": "f.<locals>.made"})
    pause()
    return made


PROGRAMS: list[Callable[..., Any]] = [
    plain,
    closure,
    inherited,
    descriptors,
    records,
    tuples,
    enumeration,
    abstract,
    attributes,
    error,
    in_container,
    in_global,
    of_a_metaclass,
]


def nothing() -> None:
    """Stands for no break."""


def check_uses(found: Any, program: Callable[..., Any]) -> list[Any]:
    """Use what a program returned, as somebody outside would."""
    match program.__name__:
        case "of_a_metaclass":
            return [type(found) is Asked, isinstance(X, found), isinstance(X[..., 0], found)]
        case "plain":
            return [found().scale(X), found().scale(X, 4, more=5), found.scale.__qualname__]
        case "closure":
            counter, read = found
            return [counter.start, counter.add(X), read()]
        case "inherited":
            child, base = found
            return [child.who(), base().who(), isinstance(child, base)]
        case "descriptors":
            found.v = X
            return [found.v, type(found).v.__doc__, type(found).of(X).v, found.twice(X)]
        case "records":
            pair, point, slim, cls, frozen, slots = found
            assert cls(X).c is not cls(X).c and point == frozen(1) and not hasattr(slim, "other")
            fields = [f.name for f in dataclasses.fields(cls)]
            return [
                pair.total(),
                repr(point),
                hash(point) == hash(frozen(1)),
                pair.d is not cls(X).d and pair.d[0] is X,
                fields,
                repr(slots(X)),
            ]
        case "tuples":
            result, cls = found
            assert isinstance(result, cls)
            return [result._asdict(), cls._fields, result.product(), cls(X, 5)[1]]
        case "enumeration":
            member, cls, _ = found
            assert member is cls.FAST and member.other() is cls.SLOW and cls(1) is member
            return [repr(member), list(cls.__members__)]
        case "abstract":
            square, shape = found
            with pytest.raises(TypeError):
                shape()
            return [square.area(), isinstance(square, shape), shape.__abstractmethods__]
        case "attributes":
            assert type(found.only) is found and found.only.items is found.items
            return [found.items, found().read(), hasattr(found, "gone")]
        case "error":
            return [str(found), found.args, found.value, isinstance(found, Exception)]
        case "in_container":
            items, table = found
            return [items.total(), table["b"], table["a"]]
        case "in_global":
            return [kept[-1].value(), type(kept[-1]) is not type(kept[0])]
    return found()


@pytest.mark.parametrize("broken", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_a_class_that_leaves_is_another_in_each_call(
    program: Callable[..., Any], broken: bool
) -> None:
    pause = graph_break if broken else nothing
    compiled = api.compile(program, backend="eager", fullgraph=not broken)
    results: list[list[Any]] = []
    for function in (program, compiled):
        kept[:] = [None]
        found = [function(X, pause) for _ in range(3)]
        results.append([check_uses(each, program) for each in found])
        made = {id(cls) for each in found for cls in _classes(each)}
        assert len(made) in (0, *(3 * n for n in range(1, 7))), "a class served two calls"
    assert_same(results[1], results[0])
    assert compiled.compiler.capture_count > 0


def _classes(found: Any) -> list[type]:
    """The classes made inside among the classes of what was returned."""
    items = found if type(found) is tuple else (found,)
    classes = [item if isinstance(item, type) else type(item) for item in items]
    return [cls for cls in classes if "<locals>" in cls.__qualname__]
