"""Kinds of plain values and containers, how they are read, and how they change."""

from __future__ import annotations

import collections
import dataclasses
import enum
from typing import Any

import numpy
import torch

from tests.capture.soundness.cases import Kind

NAN = float("nan")

NUMBER_READS = {
    "times": lambda v, x: x * v,
    "returned": lambda v, x: (v, x),
    "in a list": lambda v, x: [v, x + 1],
    "branch": lambda v, x: x + 1 if v > 2 else x - 1,
    "truth": lambda v, x: x + 1 if v else x - 1,
    "is": lambda v, x: x + 1 if v is True else x - 1,
    "is None": lambda v, x: x + 1 if v is None else x - 1,
    "type": lambda v, x: (x + 1, type(v).__name__),
    "isinstance": lambda v, x: x + 1 if isinstance(v, bool) else x - 1,
    "equals": lambda v, x: x + 1 if v == 1 else x - 1,
    "text": lambda v, x: (x + 1, f"{v!r}"),
    "as a key": lambda v, x: {1: x, 2: x + 2}.get(v, -x),
    "in": lambda v, x: x + 1 if v in (1, 4) else x - 1,
    "power": lambda v, x: x**v,
    "fill": lambda v, x: torch.full((2,), v) + x[0, 0],
    "unread": lambda v, x: x + 1,
}

NUMBERS = {
    "4": lambda: 4,
    "True": lambda: True,
    "1": lambda: 1,
    "1.0": lambda: 1.0,
    "0": lambda: 0,
    "0.0": lambda: 0.0,
    "-0.0": lambda: -0.0,
    "nan": lambda: NAN,
    "complex": lambda: 1 + 0j,
    "text": lambda: "text",
    "None": lambda: None,
    "tensor": lambda: torch.tensor(3.0),
    "huge": lambda: 10**25,
    "numpy": lambda: numpy.float64(3.0),
}


class Color(enum.Enum):
    """An enum for tests."""

    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    """An enum of ints."""

    LOW = 1
    HIGH = 2


NUMBER_KINDS = tuple(
    Kind(name=name, make=make, reads=NUMBER_READS, others=NUMBERS)
    for name, make in (
        ("int", lambda: 1),
        ("float", lambda: 1.0),
        ("bool", lambda: True),
        ("zero", lambda: 0.0),
        ("None", lambda: None),
    )
)

TEXT = Kind(
    name="str",
    make=lambda: "relu",
    reads={
        "equals": lambda v, x: torch.relu(x) if v == "relu" else x - 1,
        "getattr of torch": lambda v, x: getattr(torch, v)(x),
        "length": lambda v, x: x + len(v),
        "in": lambda v, x: x + 1 if "e" in v else x - 1,
        "startswith": lambda v, x: x + 1 if v.startswith("r") else x - 1,
        "truth": lambda v, x: x + 1 if v else x - 1,
        "as a key": lambda v, x: {"relu": x, "sin": -x}[v],
        "iterated": lambda v, x: [c + "." for c in v],
        "hasattr": lambda v, x: x + 1 if hasattr(v, "upper") else x - 1,
    },
    others={
        "sin": lambda: "sin",
        "empty": lambda: "",
        "bytes": lambda: b"relu",
        "None": lambda: None,
        "subclass": lambda: type("Text", (str,), {"__eq__": lambda s, o: False})("relu"),
    },
)

ENUM = Kind(
    name="enum",
    make=lambda: Color.RED,
    reads={
        "is": lambda v, x: x + 1 if v is Color.RED else x - 1,
        "value": lambda v, x: x * v.value,
        "name": lambda v, x: (x + 1, v.name),
        "returned": lambda v, x: (v, x),
        "as a key": lambda v, x: {Color.RED: x, Color.BLUE: -x}.get(v, x * 3),
    },
    others={
        "BLUE": lambda: Color.BLUE,
        "LOW": lambda: Level.LOW,
        "1": lambda: 1,
    },
)

INT_ENUM = Kind(
    name="int enum",
    make=lambda: Level.LOW,
    reads={
        "times": lambda v, x: x * v,
        "equals": lambda v, x: x + 1 if v == 1 else x - 1,
        "type": lambda v, x: (x, type(v).__name__),
    },
    others={"HIGH": lambda: Level.HIGH, "1": lambda: 1, "2": lambda: 2},
)

SEQUENCE_READS = {
    "first": lambda v, x: x * v[0],
    "last": lambda v, x: x * v[-1],
    "length": lambda v, x: x * len(v),
    "sum": lambda v, x: x + sum(v),
    "loop": lambda v, x: [x * item for item in v],
    "truth": lambda v, x: x + 1 if v else x - 1,
    "in": lambda v, x: x + 1 if 3 in v else x - 1,
    "unpacked": lambda v, x: [x + item for item in (*v, 1)],
    "slice": lambda v, x: (x, v[1:]),
    "equals": lambda v, x: x + 1 if v == [1, 2, 3] else x - 1,
    "index": lambda v, x: x + v.index(2),
    "copied": lambda v, x: (list(v), x),
    "returned": lambda v, x: (v, x + 1),
    "reversed": lambda v, x: (list(reversed(v)), x),
    "sorted": lambda v, x: (sorted(v), x),
    "star call": lambda v, x: (lambda *a: x + len(a) + a[0])(*v),
    "isinstance": lambda v, x: x + 1 if isinstance(v, (list, tuple)) else x - 1,
    "enumerate": lambda v, x: [(i, item * x) for i, item in enumerate(v)],
    "zip": lambda v, x: [(a, b) for a, b in zip(v, [5, 6], strict=False)],
    "max": lambda v, x: x + max(v),
    "view": lambda v, x: x.new_zeros(v),
    "iterator": lambda v, x: x + next(iter(v)),
}


class Items(list):  # type: ignore[type-arg]
    """A subclass of list."""


class Doubled(list):  # type: ignore[type-arg]
    """A subclass of list that reads otherwise."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) * 2

    def __len__(self) -> int:
        return 7


SEQUENCES = {
    "other items": lambda: [1, 2, 4],
    "more items": lambda: [1, 2, 3, 4],
    "no items": lambda: [],
    "a tuple": lambda: (1, 2, 3),
    "booleans": lambda: [True, 2, 3],
    "floats": lambda: [1.0, 2, 3],
    "a range": lambda: range(1, 4),
    "a subclass": lambda: Items([1, 2, 3]),
    "an overriding subclass": lambda: Doubled([1, 2, 3]),
    "None": lambda: None,
    "a tensor": lambda: torch.tensor([1, 2, 3]),
    "a size": lambda: torch.Size([1, 2, 3]),
    "a deque": lambda: collections.deque([1, 2, 3]),
}

LIST_CHANGES = {
    "first item": lambda v: v.__setitem__(0, 5),
    "last item": lambda v: v.__setitem__(-1, 5),
    "first item to bool": lambda v: v.__setitem__(0, True),
    "append": lambda v: v.append(4),
    "insert": lambda v: v.insert(0, 9),
    "clear": lambda v: v.clear(),
    "pop": lambda v: v.pop(),
    "reverse": lambda v: v.reverse(),
    "an item becomes None": lambda v: v.__setitem__(1, None),
    "an item becomes a tensor": lambda v: v.__setitem__(0, torch.tensor(5.0)),
}

UNREAD_OF_LIST = (
    ("first", "last item"),
    ("length", "first item"),
    ("truth", "first item"),
    ("isinstance", "first item"),
    ("iterator", "last item"),
)

LIST = Kind(
    name="list",
    make=lambda: [1, 2, 3],
    reads=SEQUENCE_READS,
    others=SEQUENCES,
    changes=LIST_CHANGES,
    unread=UNREAD_OF_LIST,
)
LIST_SUBCLASS = Kind(
    name="list subclass",
    make=lambda: Items([1, 2, 3]),
    reads=SEQUENCE_READS | {"attribute": lambda v, x: x + getattr(v, "extra", 0)},
    others=SEQUENCES,
    changes=LIST_CHANGES | {"attribute": lambda v: setattr(v, "extra", 5)},
)
TUPLE = Kind(name="tuple", make=lambda: (1, 2, 3), reads=SEQUENCE_READS, others=SEQUENCES)
RANGE = Kind(name="range", make=lambda: range(1, 4), reads=SEQUENCE_READS, others=SEQUENCES)
DEQUE = Kind(
    name="deque",
    make=lambda: collections.deque([1, 2, 3]),
    reads=SEQUENCE_READS,
    others=SEQUENCES,
    changes=LIST_CHANGES,
)

NESTED_LIST = Kind(
    name="nested list",
    make=lambda: [[1, 2], [3, 4]],
    reads={
        "inner": lambda v, x: x * v[0][1],
        "inner length": lambda v, x: x * len(v[0]),
        "flat": lambda v, x: [x * i for row in v for i in row],
        "same": lambda v, x: x + 1 if v[0] is v[1] else x - 1,
        "equal": lambda v, x: x + 1 if v[0] == v[1] else x - 1,
    },
    changes={
        "inner item": lambda v: v[0].__setitem__(1, 7),
        "inner append": lambda v: v[0].append(7),
        "inner replaced": lambda v: v.__setitem__(0, [1, 8]),
        "rows are one": lambda v: v.__setitem__(0, v[1]),
        "rows are equal": lambda v: v.__setitem__(0, [3, 4]),
        "recursive": lambda v: v.__setitem__(1, [v]),
    },
)

DICT_READS = {
    "item": lambda v, x: x * v["a"],
    "get": lambda v, x: x * v.get("a", 9),
    "get absent": lambda v, x: x * v.get("z", 9),
    "in": lambda v, x: x + 1 if "a" in v else x - 1,
    "not in": lambda v, x: x + 1 if "z" not in v else x - 1,
    "length": lambda v, x: x * len(v),
    "truth": lambda v, x: x + 1 if v else x - 1,
    "keys": lambda v, x: (x, list(v)),
    "first key": lambda v, x: (x, next(iter(v))),
    "items": lambda v, x: [(k, x * i) for k, i in v.items()],
    "values": lambda v, x: [x * i for i in v.values()],
    "star call": lambda v, x: (lambda **k: (list(k), x))(**v),
    "copied": lambda v, x: (dict(v), x),
    "returned": lambda v, x: (v, x + 1),
    "equals": lambda v, x: x + 1 if v == {"a": 1, "b": 2} else x - 1,
    "try": lambda v, x: _get(v, "z", x),
    "isinstance": lambda v, x: x + 1 if isinstance(v, dict) else x - 1,
    "key type": lambda v, x: (x, [type(k).__name__ for k in v]),
    "merged": lambda v, x: (x, {**v, "c": 3}),
    "or": lambda v, x: (x, v | {"c": 3}),
    "sorted": lambda v, x: (x, sorted(v)),
}


def _get(table: Any, key: Any, x: Any) -> Any:
    try:
        return x * table[key]
    except KeyError as error:
        return x - 1, str(error)


class Table(dict):  # type: ignore[type-arg]
    """A subclass of dict."""


class Forgiving(dict):  # type: ignore[type-arg]
    """A subclass of dict with an answer for absent keys."""

    def __missing__(self, key: Any) -> int:
        return 11


DICTS = {
    "other item": lambda: {"a": 3, "b": 2},
    "other order": lambda: {"b": 2, "a": 1},
    "more keys": lambda: {"a": 1, "b": 2, "z": 3},
    "fewer keys": lambda: {"a": 1},
    "no keys": lambda: {},
    "integer keys": lambda: {0: 1, 1: 2},
    "an ordered dict": lambda: collections.OrderedDict(a=1, b=2),
    "a subclass": lambda: Table(a=1, b=2),
    "an answering subclass": lambda: Forgiving(a=1, b=2),
    "a default dict": lambda: collections.defaultdict(lambda: 5, a=1, b=2),
    "a tensor item": lambda: {"a": torch.tensor(2.0), "b": 2},
    "None": lambda: None,
}

DICT_CHANGES = {
    "item": lambda v: v.__setitem__("a", 3),
    "other item": lambda v: v.__setitem__("b", 3),
    "item to bool": lambda v: v.__setitem__("a", True),
    "new key": lambda v: v.__setitem__("z", 3),
    "key deleted": lambda v: v.__delitem__("a"),
    "key moved": lambda v: v.__setitem__("a", v.pop("a")),
    "cleared": lambda v: v.clear(),
    "key of another type": lambda v: v.__setitem__(1, 3),
}

UNREAD_OF_DICT = (
    ("item", "other item"),
    ("item", "new key"),
    ("item", "key moved"),
    ("get absent", "item"),
    ("in", "item"),
    ("in", "other item"),
    ("not in", "item"),
    ("length", "item"),
    ("keys", "item"),
    ("isinstance", "new key"),
)

DICT = Kind(
    name="dict",
    make=lambda: {"a": 1, "b": 2},
    reads=DICT_READS,
    others=DICTS,
    changes=DICT_CHANGES,
    unread=UNREAD_OF_DICT,
)
DICT_SUBCLASSES = tuple(
    Kind(name=name, make=make, reads=DICT_READS, others=DICTS, changes=DICT_CHANGES)
    for name, make in (
        ("ordered dict", lambda: collections.OrderedDict(a=1, b=2)),
        ("dict subclass", lambda: Table(a=1, b=2)),
        ("answering dict", lambda: Forgiving(a=1, b=2)),
        ("counter", lambda: collections.Counter(a=1, b=2)),
    )
)

SET_READS = {
    "in": lambda v, x: x + 1 if 2 in v else x - 1,
    "length": lambda v, x: x * len(v),
    "truth": lambda v, x: x + 1 if v else x - 1,
    "sorted": lambda v, x: [x * item for item in sorted(v)],
    "union": lambda v, x: (x, v | {9}),
    "equals": lambda v, x: x + 1 if v == {1, 2} else x - 1,
    "subset": lambda v, x: x + 1 if v <= {1, 2, 3} else x - 1,
    "returned": lambda v, x: (v, x + 1),
    "isinstance": lambda v, x: x + 1 if isinstance(v, frozenset) else x - 1,
    "sum": lambda v, x: x + sum(v),
}
SETS = {
    "other members": lambda: {1, 3},
    "more members": lambda: {1, 2, 3},
    "no members": lambda: set(),
    "frozen": lambda: frozenset({1, 2}),
    "booleans": lambda: {True, 2},
    "a list": lambda: [1, 2],
}
SET = Kind(
    name="set",
    make=lambda: {1, 2},
    reads=SET_READS,
    others=SETS,
    changes={
        "add": lambda v: v.add(3),
        "discard": lambda v: v.discard(2),
        "clear": lambda v: v.clear(),
        "members change class": lambda v: (v.discard(1), v.add(True)),
    },
)
FROZEN_SET = Kind(name="frozenset", make=lambda: frozenset({1, 2}), reads=SET_READS, others=SETS)

Pair = collections.namedtuple("Pair", "first second")
OtherPair = collections.namedtuple("OtherPair", "second first")
NAMED_TUPLE = Kind(
    name="named tuple",
    make=lambda: Pair(1, 2),
    reads={
        "field": lambda v, x: x * v.first,
        "item": lambda v, x: x * v[1],
        "unpacked": lambda v, x: x * v[0] + sum([*v]),
        "asdict": lambda v, x: (x, v._asdict()),
        "replace": lambda v, x: (x, v._replace(first=7)),
        "returned": lambda v, x: (v, x + 1),
        "equals": lambda v, x: x + 1 if v == (1, 2) else x - 1,
    },
    others={
        "other field": lambda: Pair(3, 2),
        "another class": lambda: OtherPair(1, 2),
        "a tuple": lambda: (1, 2),
        "a tensor field": lambda: Pair(torch.tensor(3.0), 2),
    },
)


@dataclasses.dataclass
class Point:
    """A dataclass."""

    a: Any
    b: Any = 2


@dataclasses.dataclass(slots=True)
class SlottedPoint:
    """A dataclass with slots."""

    a: Any
    b: Any = 2


DATACLASSES = tuple(
    Kind(
        name=name,
        make=make,
        reads={
            "field": lambda v, x: x * v.a,
            "other field": lambda v, x: x * v.b,
            "equals": lambda v, x: x + 1 if v == type(v)(1, 2) else x - 1,
            "fields": lambda v, x: (x, [f.name for f in dataclasses.fields(v)]),
            "asdict": lambda v, x: (x, dataclasses.asdict(v)),
            "replace": lambda v, x: (x * dataclasses.replace(v, a=5).a, v.b),
            "match": lambda v, x: _match_point(v, x),
            "getattr": lambda v, x: x * getattr(v, "c", 4),
            "hasattr": lambda v, x: x + 1 if hasattr(v, "a") else x - 1,
        },
        others={
            "other field": lambda: Point(3),
            "with slots": lambda: SlottedPoint(1),
            "None": lambda: None,
        },
        changes={
            "field": lambda v: setattr(v, "a", 3),
            "field to tensor": lambda v: setattr(v, "a", torch.tensor(2.0)),
            "other field": lambda v: setattr(v, "b", 3),
            "field deleted": lambda v: delattr(v, "a"),
        },
        unread=(("field", "other field"), ("other field", "field")),
    )
    for name, make in (
        ("dataclass", lambda: Point(1)),
        ("slots dataclass", lambda: SlottedPoint(1)),
    )
)


def _match_point(value: Any, x: Any) -> Any:
    match value:
        case Point(a=1):
            return x + 1
        case SlottedPoint(a=1, b=other):
            return x + other
        case Point(b=other):
            return x - other
        case _:
            return x * 0


def _small(name: str, make: Any, others: dict[str, Any], **reads: Any) -> Kind:
    return Kind(name=name, make=make, reads=reads, others=others)


TORCH_CONSTANTS = (
    _small(
        "dtype",
        lambda: torch.float32,
        {"float64": lambda: torch.float64, "int64": lambda: torch.int64, "None": lambda: None},
        to=lambda v, x: x.to(v),
        zeros=lambda v, x: torch.zeros(2, dtype=v) + x[0, 0],
        floating=lambda v, x: x + 1 if v.is_floating_point else x - 1,
    ),
    _small(
        "device",
        lambda: torch.device("cpu"),
        {"meta": lambda: torch.device("meta"), "text": lambda: "cpu"},
        zeros=lambda v, x: torch.zeros(2, device=v),
        kind=lambda v, x: (x, v.type),
    ),
    _small(
        "slice",
        lambda: slice(0, 2),
        {
            "shorter": lambda: slice(0, 1),
            "stepped": lambda: slice(0, 2, 2),
            "an index": lambda: 1,
            "open": lambda: slice(None),
        },
        taken=lambda v, x: x[v],
        columns=lambda v, x: x[:, v],
        of_list=lambda v, x: (x, [1, 2, 3][v]),
    ),
    _small(
        "size",
        lambda: torch.Size([3, 2]),
        {"other": lambda: torch.Size([2, 3]), "tuple": lambda: (3, 2), "flat": lambda: (6,)},
        reshape=lambda v, x: x.reshape(v),
        numel=lambda v, x: x * len(v),
        kind=lambda v, x: (x, type(v).__name__),
    ),
    _small(
        "ellipsis",
        lambda: ...,
        {"none": lambda: None, "zero": lambda: 0},
        taken=lambda v, x: x[v],
    ),
    _small(
        "numpy array",
        lambda: numpy.arange(3.0, dtype=numpy.float32),
        {
            "other values": lambda: numpy.ones(3, dtype=numpy.float32),
            "other shape": lambda: numpy.ones((1, 3), dtype=numpy.float32),
            "other dtype": lambda: numpy.ones(3, dtype=numpy.float64),
        },
        from_numpy=lambda v, x: x + torch.from_numpy(v),
        tensor=lambda v, x: x + torch.tensor(v),
        shape=lambda v, x: (x, v.shape),
        total=lambda v, x: x * float(v.sum()),
    ),
    _small(
        "numpy scalar",
        lambda: numpy.float64(2.0),
        {"other": lambda: numpy.float64(3.0), "single": lambda: numpy.float32(2.0)},
        times=lambda v, x: x * v,
        returned=lambda v, x: (x, float(v)),
    ),
)

KINDS = (
    *NUMBER_KINDS,
    TEXT,
    ENUM,
    INT_ENUM,
    LIST,
    LIST_SUBCLASS,
    TUPLE,
    RANGE,
    DEQUE,
    NESTED_LIST,
    DICT,
    *DICT_SUBCLASSES,
    SET,
    FROZEN_SET,
    NAMED_TUPLE,
    *DATACLASSES,
    *TORCH_CONSTANTS,
)
