"""The Python language under capture: each function must do, captured, what it does when run."""

# ruff: noqa: B018, B905, C409, C416, C417, RUF005, RUF015, RUF059, UP031
# (these functions are meant to use every form that the language has)

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
from typing import Any, NamedTuple

import pytest
import torch

from tests.capture.agreement import Point, check

X = torch.arange(6.0).reshape(2, 3)
SCALE = 3
TABLE = {"a": 1.5, "b": 2}


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Pair(NamedTuple):
    first: Any
    second: Any


class Counter:
    total = 0

    def __init__(self, start: int) -> None:
        self.count = start

    @property
    def double(self) -> int:
        return self.count * 2

    @double.setter
    def double(self, value: int) -> None:
        self.count = value // 2

    @classmethod
    def make(cls, start: int) -> Counter:
        return cls(start + 1)

    @staticmethod
    def twice(x: Any) -> Any:
        return x + x

    def bump(self, x: Any) -> Any:
        self.count += 1
        return x * self.count

    def __getitem__(self, index: int) -> int:
        return self.count + index

    def __len__(self) -> int:
        return self.count

    def __contains__(self, item: object) -> bool:
        return item == self.count

    def __call__(self, x: Any) -> Any:
        return x + self.count

    def __add__(self, other: Any) -> Any:
        return self.count + other

    def __radd__(self, other: Any) -> Any:
        return other + self.count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counter) and other.count == self.count

    __hash__ = None  # type: ignore[assignment]


class Loud(Counter):
    def bump(self, x: Any) -> Any:
        return super().bump(x) + 100

    def __getattr__(self, name: str) -> Any:
        if name.startswith("dynamic_"):
            return len(name)
        raise AttributeError(name)


class Tracked(dict):  # type: ignore[type-arg]
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.last = key


class Stack(list):  # type: ignore[type-arg]
    def push(self, item: Any) -> None:
        self.append(item)


@dataclasses.dataclass
class Box:
    value: Any
    items: list[Any] = dataclasses.field(default_factory=list)
    doubled: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.doubled = self.value * 2


@contextlib.contextmanager
def appended(log: list[Any], text: str) -> Any:
    log.append(f"enter {text}")
    try:
        yield text
    finally:
        log.append(f"leave {text}")


class Swallow:
    def __enter__(self) -> Swallow:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self.kind = kind
        return kind is KeyError


def arithmetic(x, n):
    return x * n + x / 2 - n // 2 + x**2 - (n % 3), -x, +n, ~n, n << 2, n >> 1, n ^ 5, n | 8, n & 3


def comparisons(x, n):
    return (
        x > n,
        n < 5,
        n == 5,
        n != 4,
        n >= 5 > 2,
        x == x,
        x is x,
        n is not None,
        3 in (1, 2, 3),
        4 not in [4],
    )


def loops(x):
    out = []
    for i in range(3):
        if i == 1:
            continue
        for j in (1, 2):
            out.append(x * i + j)
    out.append("done")
    n = 0
    while True:
        n += 1
        if n > 4:
            break
    return out, n


def comprehensions(x):
    a = [x + i for i in range(3) if i != 1]
    b = {i: x * i for i in range(2)}
    c = {i % 2 for i in range(5)}
    d = sum(i * i for i in range(4))
    e = [(i, j) for i in range(2) for j in range(i + 1)]
    return a, b, c, d, e


def unpacking(x):
    a, b = (1, 2)
    c, *d = [3, 4, 5]
    *e, f = "abc"
    (g, h), i = (1, 2), 3
    first, second = x
    return a, b, c, d, e, f, g, h, i, first + second


def slicing(x):
    items = [0, 1, 2, 3, 4]
    return (
        items[1:3],
        items[::-1],
        items[-1],
        (1, 2, 3)[1:],
        "hello"[1:3],
        x[0],
        x[:, 1:],
        x[..., None],
        x[x.shape[0] - 1],
    )


def f_strings(x, n):
    return f"{n:>4}|{n!r}|{x.shape}|{'a' + 'b'}|{1.5:.2f}"


def star_calls(x):
    def inner(a, /, b, *rest, c=3, **named):
        return a, b, rest, c, named

    return inner(1, 2), inner(1, 2, 3, 4, c=5, d=x), inner(*[1, 2, 3], **{"c": 4, "e": 5})


def closures(x):
    count = 0

    def bump(by=1):
        nonlocal count
        count += by
        return x * count

    first = bump()
    second = bump(by=3)
    return first, second, count


def lambdas(x):
    return (
        (lambda a, b=2: a * b)(x),
        list(map(lambda i: i + 1, [1, 2])),
        sorted([3, 1, 2], key=lambda i: -i),
    )


def recursion(x):
    def factorial(n):
        return 1 if n <= 1 else n * factorial(n - 1)

    return x * factorial(5)


def generators(x):
    def squares(n):
        for i in range(n):
            got = yield x * i
            assert got is None
        return "end"

    def outer():
        result = yield from squares(2)
        yield result

    return list(outer()), next(squares(1))


def walrus(x):
    if (n := x.shape[0]) > 1:
        return x * n, [y := 3, y**2]
    return x


def matching(x, command):
    match command:
        case {"scale": factor}:
            return x * factor
        case [a, b]:
            return x + a + b
        case Point(x=0, y=y):
            return x - y
        case str(name) if name == "id":
            return x
        case _:
            return -x


def exceptions(x):
    log = []
    try:
        try:
            {}["missing"]
        except KeyError as error:
            log.append(str(error))
            raise ValueError("again") from error
        finally:
            log.append("finally")
    except (ValueError, TypeError) as error:
        log.append(error.args[0])
    else:
        log.append("never")
    try:
        int("x")
    except ValueError:
        log.append("int")
    try:
        x.no_such_thing
    except AttributeError:
        log.append("attribute")
    try:
        raise KeyError
    except LookupError:
        log.append("lookup")
    return x, log


def exception_groups_of_types(x):
    for value in (1, "a", None):
        try:
            value + 1
        except TypeError as error:
            x = x + len(type(error).__name__)
    return x


def with_blocks(x):
    log = []
    with appended(log, "a") as name, appended(log, "b"):
        x = x + len(name)
    with Swallow() as swallow:
        raise KeyError("swallowed")
    try:
        with appended(log, "c"):
            raise ValueError("through")
    except ValueError as error:
        log.append(str(error))
    with contextlib.nullcontext(5) as five, contextlib.suppress(ZeroDivisionError):
        1 / 0
    return x, log, five, swallow.kind is KeyError


def grad_modes(x):
    with torch.no_grad():
        a = torch.is_grad_enabled()
        y = x * 2
    with torch.enable_grad():
        b = torch.is_grad_enabled()
    return y, a, b, torch.is_grad_enabled()


def decorators(x):
    def double(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) * 2

        return wrapper

    @double
    def inner(a):
        "doc"
        return a + 1

    return inner(x), inner.__name__, inner.__doc__


def classes(x):
    counter = Counter(2)
    counter.double = 10
    loud = Loud.make(1)
    return (
        counter.bump(x),
        counter.double,
        Counter.twice(x),
        loud.bump(x),
        loud.dynamic_thing,
        counter[3],
        len(counter),
        6 in counter,
        counter(x),
        counter + 1,
        1 + counter,
        counter == Counter(6),
        counter != loud,
        isinstance(loud, Counter),
        issubclass(Loud, Counter),
        type(loud).__name__,
        hasattr(loud, "nothing"),
        getattr(loud, "nothing", 7),
        counter,
    )


def dataclass_objects(x):
    box = Box(x)
    point = Point(x, y=3)
    other = dataclasses.replace(point, y=4)
    return (
        box,
        point,
        other,
        [field.name for field in dataclasses.fields(point)],
        dataclasses.is_dataclass(box),
    )


def named_tuples(x):
    pair = Pair(x, 2)
    first, second = pair
    return pair, pair.first + 1, pair._replace(second=3), second, pair[1], pair._asdict()


def enums(x):
    return (
        (x if Color.RED is Color(1) else -x),
        Color["GREEN"],
        Color.RED.value,
        Color.RED.name,
        Color.RED == Color.GREEN,
    )


def dict_methods(x):
    d = {"a": 1, **TABLE, "x": x}
    d.update(c=3)
    d.setdefault("e", 5)
    popped = d.pop("a"), d.pop("zz", None)
    d["b"] += 1
    del d["c"]
    return (
        d,
        popped,
        list(d),
        list(d.items())[0],
        "b" in d,
        d.get("q", 9),
        len(d),
        {**d, "n": 1},
        dict(zip("ab", (1, 2))),
        dict.fromkeys("ab", 0),
        d | {"z": 1},
        list(reversed(d)),
    )


def list_methods(x):
    a = [3, 1, 2]
    a.append(4)
    a.extend((5, 6))
    a.insert(0, 0)
    a.remove(3)
    last = a.pop()
    a.reverse()
    a.sort()
    a[0] = 9
    a[1:3] = [7, 7, 7]
    del a[-1]
    b = a.copy()
    b += [1]
    return (
        a,
        b,
        last,
        a.index(7),
        a.count(7),
        a * 2,
        [x] + [1],
        [1, 2] == [1, 2],
        [1] < [2],
        sum(a),
        max(a),
        min(a),
    )


def set_methods(x):
    a = {1, 2, 3}
    a.add(4)
    a.discard(9)
    b = a & {2, 3}, a | {7}, a - {1}, a ^ {1, 9}
    return a, b, 2 in a, frozenset([1, 2]), a.issuperset({1}), len(a)


def tuple_methods(x):
    t = (1, 2) + (x,) + (3,) * 2
    return t, t[1], t[-1:], len(t), (1, 2).index(2), (1, 1).count(1), tuple([1]), (1, 2) < (1, 3)


def string_methods(x):
    s = "Hello, World"
    return (
        s.lower(),
        s.split(", "),
        "-".join(["a", "b"]),
        s.replace("l", "L"),
        s.startswith("He"),
        "%s %d" % ("a", 3),
        f"{1} {2}",
        s.find("W"),
        s[::-1],
        s.encode(),
        str(3.5),
        repr("a"),
        "a" * 3,
        s.strip("H").title(),
    )


def iterators(x):
    it = iter([1, 2, 3])
    first = next(it)
    rest = list(it)
    return (
        first,
        rest,
        list(enumerate("ab", 1)),
        list(zip([1, 2], "ab")),
        list(map(operator.add, [1, 2], [3, 4])),
        list(filter(None, [0, 1, 2])),
        list(reversed([1, 2])),
        any([0, x.shape[0]]),
        all(i > 0 for i in (1, 2)),
        next(iter(()), "default"),
        list(range(5, 0, -2)),
    )


def itertools_functions(x):
    return (
        list(itertools.chain([1], (2, 3))),
        list(itertools.product([1, 2], "a")),
        list(itertools.islice(itertools.count(), 2, 8, 3)),
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.combinations([1, 2, 3], 2)),
        list(itertools.repeat(x, 2)),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
        list(itertools.pairwise([1, 2, 3])),
        list(itertools.chain.from_iterable([[1], [2]])),
        list(itertools.starmap(pow, [(2, 3)])),
        list(itertools.takewhile(lambda i: i < 2, [1, 2, 1])),
        list(itertools.dropwhile(lambda i: i < 2, [1, 2, 1])),
    )


def functools_functions(x):
    add = functools.partial(operator.add, x)
    scaled = functools.partial(torch.mul, other=2)
    return (
        add(1),
        scaled(x),
        functools.reduce(lambda a, b: a + b, [x, x, x]),
        functools.reduce(operator.mul, [1, 2, 3], 10),
    )


def collections_types(x):
    ordered = collections.OrderedDict(a=1)
    ordered["b"] = x
    ordered.move_to_end("a")
    default = collections.defaultdict(list)
    default["k"].append(x)
    return ordered, default, list(ordered.keys()), default["k"][0]


def math_functions(x):
    return (
        x * math.sqrt(4.0),
        math.pi,
        math.prod([2, 3]),
        math.ceil(1.2),
        math.inf,
        abs(-2),
        round(2.567, 2),
        divmod(7, 2),
        pow(2, 5),
    )


def operator_functions(x):
    return (
        operator.add(x, 1),
        operator.itemgetter(1)([1, 2]),
        operator.getitem([1, 2], 0),
        operator.attrgetter("y")(Point(1, 3)),
        operator.contains([1], 1),
    )


def subclasses_of_containers(x):
    tracked = Tracked(a=1)
    tracked["b"] = x
    stack = Stack([1])
    stack.push(x)
    return tracked, tracked.last, stack, len(stack)


def aliasing(x):
    inner = [x]
    outer = {"a": inner, "b": inner, "t": (inner,)}
    inner.append(1)
    return outer, outer["a"] is outer["b"], outer["t"][0] is inner


def cycles(x):
    node = {"x": x}
    node["self"] = node
    return node["self"]["self"]["x"]


def assertions(x):
    assert x.shape[0] == 2, "never"
    return x


def conditional_expressions(x, flag):
    y = x if flag else -x
    return (flag and "yes") or "no", not flag or None, y


def globals_and_builtins(x):
    return x * SCALE + TABLE["a"], len(TABLE), __name__


def augmented(x):
    y = x.clone()
    y += 1
    y[0] = 5
    y[:, 1] *= 2
    z = y
    z.mul_(2)
    return y, z is y


def chained_methods(x):
    return (
        x.view(-1).reshape(3, 2).transpose(0, 1).contiguous().sum(dim=-1, keepdim=True).squeeze(-1)
    )


def metadata(x):
    return (
        x.shape,
        x.size(),
        x.size(0),
        x.dim(),
        x.ndim,
        x.numel(),
        x.dtype,
        x.device,
        x.is_floating_point(),
        x.stride(),
        x.is_contiguous(),
        len(x),
        x.shape[-1],
        x.requires_grad,
        x.layout,
        x.element_size(),
        x.T,
        x.mT,
        x.shape[:-1] + (7,),
        isinstance(x, torch.Tensor),
        torch.is_tensor(x),
        x.is_cuda,
        x.size()[0],
        tuple(x.shape),
    )


def factories(x):
    return (
        torch.zeros(2),
        torch.arange(3) + 1,
        torch.tensor([1.0, 2.0]),
        torch.ones_like(x),
        x.new_zeros(2),
        torch.full((2,), 7),
        torch.empty(0),
    )


def multiple_outputs(x):
    values, indices = x.max(dim=1)
    pair = torch.sort(x)
    a, b = x.split([1, 2], dim=1)
    return values, indices, pair, pair.values, a, b, list(x.chunk(3, 1)), torch.topk(x, 1).indices


def constant_tensors(x):
    n = torch.tensor(3)
    return x * n.item(), [row for row in x], torch.stack([x, x]), torch.cat((x, x), dim=0)


def early_return(x, flag):
    if flag:
        return None
    return x


def no_tensors(n):
    return [n, n + 1], {"a": n}


def delete_things(x):
    y = x
    del y
    d = Point(1)
    del d.y
    return x, hasattr(d, "y"), "y" in vars(d)


SIMPLE = [
    loops,
    comprehensions,
    unpacking,
    slicing,
    star_calls,
    closures,
    lambdas,
    recursion,
    generators,
    walrus,
    exceptions,
    exception_groups_of_types,
    with_blocks,
    grad_modes,
    decorators,
    classes,
    dataclass_objects,
    named_tuples,
    enums,
    dict_methods,
    list_methods,
    set_methods,
    tuple_methods,
    string_methods,
    iterators,
    itertools_functions,
    functools_functions,
    collections_types,
    math_functions,
    operator_functions,
    subclasses_of_containers,
    aliasing,
    cycles,
    assertions,
    globals_and_builtins,
    augmented,
    chained_methods,
    metadata,
    factories,
    multiple_outputs,
    constant_tensors,
    delete_things,
]


@pytest.mark.parametrize("function", SIMPLE, ids=lambda f: f.__name__)
def test_function_of_a_tensor(function: Any) -> None:
    with torch.no_grad():
        check(function, X)


@pytest.mark.parametrize("function", [arithmetic, comparisons, f_strings], ids=lambda f: f.__name__)
def test_function_of_a_tensor_and_a_number(function: Any) -> None:
    check(function, X, 5)


@pytest.mark.parametrize("command", [{"scale": 3}, [1, 2], Point(0, 5), "id", "other", 7])
def test_match_statement(command: Any) -> None:
    check(matching, X, command)


@pytest.mark.parametrize("flag", [True, False])
def test_branches_on_python_values(flag: bool) -> None:
    check(conditional_expressions, X, flag)
    check(early_return, X, flag)


def test_without_tensors_there_is_no_graph() -> None:
    check(no_tensors, 3, graphs=0)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (2, 0), (2, 3, 4)])
def test_shapes(shape: tuple[int, ...]) -> None:
    check(lambda x: (x + 1, x.sum(), x.shape, x.numel()), torch.randn(shape))


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64],
)
def test_dtypes(dtype: torch.dtype) -> None:
    check(
        lambda x: (x * 1, x.to(torch.float32) if not x.is_complex() else x, x.dtype),
        torch.ones(3, dtype=dtype),
    )
