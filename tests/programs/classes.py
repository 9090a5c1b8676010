"""Classes of every kind under capture: descriptors, hooks of attributes, inheritance, metaclasses,
special methods, dataclasses, enums, classes made inside."""

# ruff: noqa (these programs are meant to use every form that the language has)

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import inspect
import math
import operator
import typing

import torch

from tests.programs import corpus

X = torch.arange(3.0)

program = corpus.program((X,))


# -- containers whose methods C does not ask ------------------------------------------------------


class Sizeless(tuple):
    """A tuple that says it has no length."""

    def __len__(self):
        raise NotImplementedError


class Closed(list):
    """A list that nobody may walk over."""

    def __iter__(self):
        raise NotImplementedError


@program
def containers_that_refuse_their_own_methods(x):
    pair, items = Sizeless((1, 2)), Closed([3, 2])
    items.sort()
    items.append(5)
    known = pair in (Sizeless((1, 3)), Sizeless((1, 2))), items == [2, 3, 5], pair.index(2)
    return x + 1, known, items[0], tuple.__len__(pair), list.__len__(items)


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


class Record(dict):
    """A dictionary whose items are attributes, by methods that C gave other names."""

    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


RECORD = Record(kept=1, gone=2)


@program
def attributes_that_are_items(x):
    made = Record(a=x)
    made.b = made.a + 1
    RECORD.count = 1
    RECORD.count += RECORD.get("count", 0) + RECORD.kept
    RECORD.gone = 3
    del RECORD.gone
    return made, vars(made), dict(RECORD), vars(RECORD), hasattr(RECORD, "gone")


class Cached:
    scale = 2

    @functools.lru_cache(maxsize=None)
    def table(self, size):
        return [self.scale * i for i in range(size)]

    @staticmethod
    @functools.lru_cache
    def doubled(number):
        return number * 2


CACHED = Cached()


@program
def cached_methods(x):
    return (
        x * CACHED.table(3)[2] + Cached.table(CACHED, 2)[1],
        CACHED.doubled(4),
        len(CACHED.table(3)),
    )


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


class Odd(Base):
    def variable(*args):
        return super().who()

    def forgotten(self):
        del self
        return super().who()

    def other(self):
        return super(Left, self).who()

    def late(self):
        return super().who()


@program
def super_that_has_no_object(x):
    def without_parameters():
        return super().who()

    def outside_of_a_class(self):
        return super().who()

    errors = []
    odd = Odd()
    for call in (
        without_parameters,
        lambda: outside_of_a_class(odd),
        odd.variable,
        odd.forgotten,
        odd.other,
        lambda: Odd.late(5),
    ):
        try:
            call()
        except (RuntimeError, TypeError) as error:
            errors.append((type(error), error.args))
    return x, errors, odd.late()


@program
def patterns_that_are_no_class(x):
    number, errors = 5, []
    try:
        match x:
            case number():
                errors.append("matched")
    except TypeError as error:
        errors.append(error.args)
    return x, errors


SEEN = Left.__dict__


@program
def attributes_of_a_class_as_a_mapping(x):
    own = {name: item for name, item in vars(Both).items() if not name.startswith("__")}
    shown = vars(Right)
    return (
        x,
        own,
        sorted(name for name in shown if name[0] != "_"),
        shown["tag"],
        shown.get("registry"),
        "who" in shown,
        len(vars(Left)),
        type(shown),
        isinstance(shown, dict),
        SEEN["who"](Left()),
        vars(int)["real"].__name__,
    )


@program
def parameters_of_a_signature(x):
    parameters = inspect.signature(Meta.__call__).parameters
    return x, parameters.keys(), list(parameters.values()), type(parameters)


BOTH = Both()
SUPER, OF_CLASS = super(Left, BOTH), super(Left, Both)


@program
def super_objects_that_exist(x):
    parts = SUPER.__class__, SUPER.__thisclass__, SUPER.__self_class__, SUPER.__self__ is BOTH
    SUPER.__setattr__("kept", 3)
    try:
        SUPER.nothing
    except AttributeError as error:
        text = str(error)
    return (
        x + 1, SUPER.who(), OF_CLASS.make().who(), parts, SUPER.__getattribute__("kept"), text,
        SUPER.__hash__() == hash(BOTH), SUPER.__eq__(BOTH), SUPER.__init__(),
    )  # fmt: skip


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


class Asked(type):
    """A metaclass that answers for its classes, and makes them as `type` does."""

    def __instancecheck__(cls, instance):
        return len(instance.shape) == cls.dimensions

    def __call__(cls, *arguments):
        return [super().__call__(), *arguments]

    def __repr__(cls):
        return f"of {cls.dimensions} dimensions"


class Dimensioned(metaclass=Asked):
    dimensions = 0


@program
def classes_of_a_metaclass(x):
    made = Asked(f"Rows{x.ndim}", (Dimensioned,), {"dimensions": 2})

    class Stated(metaclass=Asked):
        dimensions = 3

    class Derived(made):
        dimensions = 1

    made.__module__ = "elsewhere"
    found = [isinstance(x, each) for each in (Dimensioned, made, Stated, Derived)]
    kinds = [type(each) is Asked for each in (made, Stated, Derived)]
    return (
        x + 1,
        found,
        kinds,
        repr(made),
        made.__module__,
        Derived(5)[1:],
        issubclass(Derived, made),
    )


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


class Options(typing.TypedDict, total=False):
    k: int
    name: str


@program
def typed_dicts(x):
    class Inside(typing.TypedDict):
        a: int

    options = Options(k=3)
    options["name"] = "n"
    return x * options["k"] + Inside(a=2)["a"], options, Inside(a=1), type(options)


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
