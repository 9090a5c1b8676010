"""The methods and operators of Python's built-in types and of its library's pure functions: each
line below is compiled as a function, where its names are made inside and where they are arguments.

A line gives what it gives when run (class, content, aliasing, or the exception's class and
arguments), leaves its arguments as it leaves them when run, and is captured as one graph.
"""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import json
import math
import operator
import pickle
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.capture.agreement import check

X = torch.arange(3.0)


class Named(typing.NamedTuple):
    first: Any
    second: Any = 2


class Upper(str):
    def __str__(self) -> str:
        return "upper"


class Even(int):
    def __add__(self, other: int) -> int:
        return 100 + other


class Reversed(list):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self) - 1, -1, -1)])

    def append(self, item: Any) -> None:
        super().append((item, "appended"))


class Defaulting(dict):  # type: ignore[type-arg]
    def __missing__(self, key: Any) -> Any:
        return (key, "missing")


class Taking:
    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords

    __call__ = dict


class Noting(dict):  # type: ignore[type-arg]
    def __setitem__(self, key: Any, item: Any) -> None:
        super().__setitem__(key, ("noted", item))


class NotingInOrder(collections.OrderedDict):  # type: ignore[type-arg]
    def __setitem__(self, key: Any, item: Any) -> None:
        super().__setitem__(key, ("noted", item))


class Ranked:
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __lt__(self, other: Ranked) -> bool:
        return self.rank < other.rank


class Grid:
    def __getitem__(self, key: Any) -> Any:
        return key


MODULES = (collections, copy, functools, itertools, json, math, operator, pickle, re, types, typing)

NAMES: dict[str, Any] = {
    **{module.__name__: module for module in MODULES},
    **{name: value for name, value in globals().items() if not name.startswith("_")},
    **vars(collections),
    **{name: value for name, value in vars(itertools).items() if not name.startswith("_")},
}

TABLE: dict[str, tuple[dict[str, str], str]] = {}
"""Lines by theme, with the names that they use and what those stand for."""

TABLE["list"] = (
    {"a": "[3, 1, 2]", "b": "[[1], x, 'c']", "i": "1"},
    """
    a.append(5)
    a.append(a)
    a.extend([7, x])
    a.extend(a)
    a.extend(i * 2 for i in range(3))
    a.extend(5)
    a.insert(1, "in")
    a.insert(-100, 0)
    a.insert(100, 0)
    a.insert("1", 0)
    a.pop()
    a.pop(0)
    a.pop(-2)
    a.pop(10)
    [].pop()
    a.remove(1)
    a.remove(10)
    a.clear()
    a.index(2)
    a.index(3, 1)
    a.index(2, -1)
    a.index(10)
    a.count(1)
    a.sort()
    a.sort(reverse=True)
    a.sort(key=lambda v: -v)
    a.sort(lambda v: v)
    a.reverse()
    a.copy()
    b.copy()[0] is b[0]
    a + b
    a + (1,)
    a * 2
    2 * a
    a * i
    a * -1
    a * 1.5
    a.__iadd__((4, 5))
    a.__imul__(2)
    a == [3, 1, 2]
    a != [3, 1, 2]
    a == (3, 1, 2)
    a < [3, 2]
    a >= [3, 1]
    a < 3
    [1] < [1, 0]
    [1, "a"] < [1, 2]
    a[0]
    a[-1]
    a[3]
    a["0"]
    a[1.0]
    a[True]
    a[0:2]
    a[::-1]
    a[5:]
    a[::0]
    a[i:]
    a.__setitem__(0, 9)
    a.__setitem__(3, 9)
    a.__setitem__(slice(1, 2), [7, 8, 9])
    a.__setitem__(slice(None, None, 2), [7])
    a.__setitem__(slice(None, None, 2), [7, 8])
    a.__setitem__(slice(0, 1), 5)
    a.__delitem__(0)
    a.__delitem__(slice(0, 2))
    a.__delitem__(9)
    a.__len__()
    a.__contains__(3)
    9 in a
    "c" in b
    len(b)
    bool(a)
    not []
    [*a, *b]
    list(a) is a
    list("abc")
    list(5)
    list()
    list(range(3))
    list({"k": 1})
    list(a)
    sorted(a)
    sorted("bca")
    sorted(a, key=lambda v: -v, reverse=True)
    sorted([(1, "b"), (1, "a")], key=lambda p: p[0])
    sorted([1, "a"])
    sorted([Ranked(2), Ranked(1)])[0].rank
    sorted(["b", "A"], key=str.lower)
    sorted([1, 2, 3], key=functools.cmp_to_key(lambda p, q: q - p))
    [v.rank for v in sorted([Ranked(2), Ranked(1)], reverse=True)]
    min(a), max(a)
    min(a, key=lambda v: -v)
    max(3, 1, i)
    max([])
    max([], default=x)
    max(5)
    max(1, "a")
    min("hello")
    sum(a)
    sum(a, 10)
    sum([[1], [2]], [])
    sum(["a"], "")
    sum([0.1] * 10)
    any(a), all(a), any([]), all([])
    repr(a), str(a)
    f"{a}"
    f"{a!r:>12}"
    "%s" % a
    hash(a)
    iter(a).__next__()
    next(iter([]))
    next(iter([]), i)
    list(reversed(a))
    a.nothing
    setattr(a, "x", 1)
    a()
    -a
    a @ a
    a[1][0]
    Reversed([1, 2])[0]
    list(Reversed([1, 2, 3]))
    [*Reversed([1, 2, 3])]
    Reversed([1, 2]).append(3)
    len(Reversed("abc")), Reversed("ab") == ["a", "b"]
    Reversed("ab") + [1]
    list.__iter__(Reversed([1, 2])).__next__()
    """,
)

TABLE["tuple"] = (
    {"t": "(1, 2.5, 'z')", "u": "(x, [1])", "p": "Named(1)"},
    """
    t + u
    t + [1]
    t * 2
    2 * t
    t[0], t[-1], t[1:], t[::-1]
    t[7]
    t["a"]
    t.index(2.5)
    t.index(7)
    t.index(1, 1)
    t.count(1)
    t == (1, 2.5, "z")
    t < (1, 3)
    t < u
    t == [1, 2.5, "z"]
    hash(t) == hash((1, 2.5, "z"))
    len(t), bool(t), bool(())
    2.5 in t
    tuple(u) is u
    tuple("ab"), tuple([x, 1]), tuple()
    tuple(5)
    u[1].append(2)
    u[0] + 1
    (*t, *u)
    repr(t), str((1,)), str(())
    {t: 1}[1, 2.5, "z"]
    hash(u)
    t.__setitem__(0, 1)
    p.first, p.second, p[1], len(p)
    p._replace(first=x)
    p._replace(third=1)
    p._asdict()
    p._fields, Named._fields
    Named._make([3, x])
    Named._make([3])
    Named(1, 2, 3)
    Named(first=x)
    Named()
    p == (1, 2), p == Named(1, 2), p + (3,)
    isinstance(p, tuple), type(p).__name__
    repr(p), str(p), f"{p}"
    p.first + p.second
    [v for v in p]
    p.nothing
    tuple(p), p[:1]
    Named._field_defaults
    Named(x, u)
    """,
)

TABLE["dict"] = (
    {"d": "{'a': 1, 'b': x, 3: [1]}", "k": "'a'", "e": "{}"},
    """
    d["a"], d[k], d[3]
    d["zz"]
    d.get("a"), d.get("zz"), d.get("zz", 5)
    d.pop("a")
    d.pop("zz")
    d.pop("zz", None)
    d.popitem()
    e.popitem()
    d.setdefault("a", 2)
    d.setdefault("q", [])
    d.setdefault("r")
    d.update(e)
    d.update({"a": 2, "n": 3}, m=4)
    d.update([("p", 1), "qr"])
    d.update([1])
    d.update(["abc"])
    d.update(5)
    d.clear()
    d.copy()
    d.copy()[3] is d[3]
    d.keys()
    list(d.keys()), list(d.values()), list(d.items())
    d.keys() & {"a", "zz"}
    d.keys() | {"zz"} == {"a", "b", 3, "zz"}
    d.keys() - {"a"}
    d.keys() ^ {"a", "y"}
    d.keys() == {"a", "b", 3}
    d.keys() >= {"a"}
    d.keys().isdisjoint({"y"})
    {"a": 1}.items() == {("a", 1)}
    ("a", 1) in d.items()
    ("a", 2) in d.items()
    1 in d.values()
    "a" in d.keys()
    len(d.values()), len(d.items())
    list(reversed(d))
    list(reversed(d.items()))
    reversed(d.values()).__next__()
    d | {"a": 5, "z": 6}
    d | [("a", 5)]
    {"z": 0} | d
    d.__ior__({"a": 9})
    d.__ior__([("w", 9)])
    d == {"a": 1}
    {"a": 1, "b": 2} == {"b": 2, "a": 1}
    {"a": 1} != {"a": 1}
    d < {}
    d.__setitem__("new", x)
    d.__setitem__([], 1)
    d[[1]]
    d.__delitem__("a")
    d.__delitem__("zz")
    d.__contains__("a"), "zz" in d, d.__len__(), len(d), bool(e), not d
    [] in d
    {**d, "a": 2}
    {**d, **{"a": 3}}
    dict(d)
    dict(d, a=5, new=6)
    dict(a=1, b=x)
    dict([("a", 1)], b=2)
    dict(zip("ab", [1, 2]))
    dict([1])
    dict(5)
    dict(1, 2)
    dict.fromkeys("ab")
    dict.fromkeys(["a", 2], x)
    {key: value for key, value in d.items() if key != "b"}
    [key for key in d]
    sorted(e.items())
    repr({"a": 1, "b": [2]}), str({}), f"{ {1: 2} }"
    {1: "int"}[True], {1: "int"}[1.0]
    {(1, "a"): 2}[(1, "a")]
    {None: 1}[None]
    {X: 1}[X]
    {int: 1}[int]
    {Named(1, 2): 3}[(1, 2)]
    d.nothing
    hash(d)
    list(d)[0], next(iter(d)), *d
    max(d, key=lambda key: str(key))
    Defaulting(a=1)["zz"]
    Defaulting(a=1).get("zz")
    len(Defaulting(a=1)), Defaulting(a=1) == {"a": 1}
    Defaulting(a=1).copy()
    Noting.fromkeys("ab", x), Noting(a=1) | {"b": 2}, Noting().setdefault("a", 1)
    Noting.__setitem__({}, "a", 1)
    copy.copy(Noting(a=1)), copy.deepcopy(Noting(a=[1])), copy.copy(Reversed([1, 2])), copy.copy(d)
    copy.deepcopy(Reversed([[1], 2]))
    Noting(a=1) == {"a": 1}, Noting(a=1) != {"a": 1}, {"a": 1} == Noting(a=2)
    {"a": x} == {"a": d["b"]}, {"a": float("nan")} == {"a": float("nan")}, d == d
    Taking(a=1).__dict__ | {"b": 2}, {"b": 2} | vars(Taking(a=1))
    vars(Taking()) == {"keywords": {}}, vars(Taking(a=1)) != {}
    dict.__or__(d, 5), dict.__ror__(d, 5), dict.__eq__(d, 5), dict.__ne__(d, 5), dict.__lt__(d, d)
    d.setdefault(), d.setdefault("a", 1, 2)
    d.popitem(last=False)
    copy.deepcopy(deque([1, [2]], 2)).maxlen, (q := copy.deepcopy(deque([1], 2))).extend("ab"), q
    d.fromkeys()
    """,
)

TABLE["set"] = (
    {"s": "{1, 2, 3}", "f": "frozenset({1, 9})", "l": "[1, 1, 4]"},
    """
    s.add(4)
    s.add(1)
    s.add([])
    s.discard(1)
    s.discard(10)
    s.remove(1)
    s.remove(10)
    s.clear()
    s.update([7], (8,))
    s.update(5)
    s.copy()
    s.union(f, l), s | f
    s | l
    s.intersection(l), s & f, s.intersection(f, [1])
    s.difference(l), s - f, s.difference()
    s.symmetric_difference(l), s ^ f
    s.intersection_update(l)
    s.difference_update(l, [2])
    s.symmetric_difference_update(l)
    s.__ior__(f)
    s.__iand__(f)
    s.__isub__(f)
    s.__ixor__(f)
    s.issubset([1, 2, 3, 4]), s <= {1, 2, 3}, s < {1, 2, 3}
    s.issuperset(l), s >= {1}, s > {1, 2, 3}
    s.isdisjoint(l), s.isdisjoint([7])
    s == {3, 2, 1}, s != f, s == frozenset(s), s == [1, 2, 3]
    s <= [1]
    1 in s, 9 not in s, len(s), bool(set())
    sorted(s), sum(s), max(s)
    [] in s
    {*s, *l}
    set(l), set(), set("aab") == {"a", "b"}
    set(5)
    {1, x.shape[0], "a"}
    {v % 2 for v in s}
    frozenset(l), frozenset()
    f | s, f & s, f - s, f ^ s
    f.union([5]), f.copy() is f
    hash(f) == hash(frozenset([1, 9]))
    {f: 1}[frozenset([9, 1])]
    isinstance(f, frozenset), type(f | s), type(s | f)
    repr({1}), str(frozenset([1])), repr(set())
    set().pop()
    len({1, 1.0, True})
    {None, (1, 2)}
    {int, str} == {str, int}
    set(map(str, l))
    f.add(1)
    """,
)

TABLE["str"] = (
    {"s": "'Hello, World'", "w": "'  pad '", "n": "42"},
    """
    s.lower(), s.upper(), s.title(), s.swapcase(), s.capitalize(), s.casefold()
    s.split(","), s.rsplit(" ", 1), s.split(maxsplit=1), s.partition(", "), s.rpartition("o")
    s.splitlines(), "a\\nb".splitlines(True)
    "-".join(["a", "b"]), "".join(c for c in s if c.isupper()), ",".join(map(str, [1, 2]))
    "-".join([1])
    "-".join(5)
    s.replace("l", "L", 1), s.count("l"), s.find("W"), s.rfind("o"), s.index("W")
    s.index("zz")
    s.startswith("He"), s.endswith(("d", "x")), s.startswith("W", 7)
    w.strip(), w.lstrip(), w.rstrip(), s.strip("Hd"), s.removeprefix("He"), s.removesuffix("ld")
    s.center(20, "*"), s.ljust(15), s.rjust(15, "-"), "7".zfill(3), "a\\tb".expandtabs(4)
    s.isalpha(), "1".isdigit(), "a1".isalnum(), " ".isspace(), "A".isupper(), "id".isidentifier()
    s.encode(), s.encode("utf-16"), "é".encode("ascii", "replace")
    "é".encode("ascii")
    s[0], s[-1], s[2:5], s[::-1], len(s), bool("")
    s[100]
    s["a"]
    s + "!" + w, s * 2, 2 * s
    s + 1
    "a" < "b", "a" == s, "ell" in s, "z" not in s
    1 in s
    list(s[:3]), sorted("cab"), min(s), set("aa")
    ord("a"), chr(97), ord(s)
    int("12"), int("ff", 16), float("1e3"), complex("1j")
    int("x")
    float("x")
    "%s and %d, %5.2f%%" % ("a", n, 1.5)
    "%(k)s" % {"k": 1}
    "%r %s" % ("a", [1, "b"])
    "%d" % "a"
    "%s %s" % ("a",)
    "{} {!r:>5} {k} {0}".format(1, "a", k=2)
    "{}, {}".format(n, n)
    "{:{w}.{p}f}|{:>{w}}".format(1.5, "a", w=8, p=3)
    "{0[1]} {1.rank}".format([1, 2], Ranked(7))
    "{}".format()
    "{k}".format_map({"k": 5})
    f"{n:>8}|{n:<8}|{n:^8}|{n:+d}|{n:x}|{n:#b}|{n:08.3f}|{n:,}|{n:e}"
    f"{n!r} {s!r:>20} {s!s} {s!a}"
    f"{n:>{n // 4}}"
    f"{n=} {n + 1 = }"
    f"{'nested ' + f'{n}'}"
    f"{x.shape} {x.dtype} {x.device} {x.ndim}"
    f"{None} {True} {1.5} {1j} {(1, 2)} {[1]} {int} {len}"
    f"{s:d}"
    format(n, "05d"), format(1.5), format("a", ">3")
    str(n), repr(s), ascii("é"), str(None), str(b"a"), str(b"a", "utf-8"), repr(1.0)
    s.translate(str.maketrans("lo", "01")), s.translate({72: None})
    str.upper(s), str.join("-", "ab"), str()
    hash(s) == hash("Hello, World")
    s is s, s.nothing
    Upper("a"), str(Upper("a")), f"{Upper('a')}", Upper("a").upper(), Upper("a") + "b"
    isinstance(Upper("a"), str), len(Upper("abc"))
    string.ascii_lowercase[:3], string.capwords("a b")
    string.Template("$a b").substitute(a=1)
    """,
)

TABLE["bytes"] = (
    {"b": "b'abc'"},
    """
    b + b"d", b * 2, b[0], b[1:], b[-1], len(b), b"b" in b, 98 in b
    b.upper(), b.decode(), b.hex(), b.find(b"c"), b.split(b"b"), b.startswith(b"a")
    b.replace(b"a", b"z"), b.join([b"1", b"2"]), b.strip(b"a"), b.count(b"a"), b.center(7)
    list(b), bytes([1, 2]), bytes(3), bytes("a", "utf-8"), bytes.fromhex("ff00")
    b == b"abc", b < b"b", hash(b) == hash(b"abc"), bool(b"")
    int.from_bytes(b, "big"), (258).to_bytes(2, "little")
    b + "d"
    b.decode("nothing")
    repr(b), str(b), f"{b!r}", b"%d" % 5
    """,
)

TABLE["numbers"] = (
    {"n": "7", "y": "2.5", "c": "1 + 2j", "z": "True"},
    """
    n + 1, n - 1, n * 2, n / 2, n // 2, n % 3, n ** 2, -n, +n, ~n, abs(-n)
    n & 3, n | 8, n ^ 1, n << 2, n >> 1, divmod(n, 3), pow(n, 2, 5), pow(2, -1)
    n / 0
    n // 0
    n % 0
    y / 0
    n << -1
    n + "a"
    n @ n
    n < y, n <= 7, n == 7.0, n != y, 1 < n < 10, n > y > 3
    n < "a"
    n == "a", n is n, n is not None
    n.bit_length(), n.bit_count(), n.real, n.imag, n.numerator, n.denominator, n.conjugate()
    n.as_integer_ratio(), n.__index__(), int.__add__(n, 1), n.__add__(1.5)
    y.is_integer(), y.hex(), y.as_integer_ratio(), y.real, float.fromhex("0x1p3")
    y.nothing
    int(y), float(n), complex(n, 1), bool(n), str(y), int(True), int("0x1f", 0)
    round(y), round(2.567, 2), round(n, -1), round(-0.5), abs(c)
    c.real, c.imag, c.conjugate(), c * c, c == 1 + 2j, c + 1
    c < c
    z + 1, z and n, not z, z is True, z & False, isinstance(z, int)
    min(n, y), max(n, y), sum([n, y])
    hex(n), oct(n), bin(n), chr(n + 60), hash(n)
    float("nan") == float("nan"), float("inf") > n, -0.0 == 0.0, str(-0.0)
    math.sqrt(n), math.floor(y), math.ceil(y), math.gcd(n, 14), math.factorial(5), math.pi
    math.sqrt(-1)
    math.isnan(y), math.isclose(0.1 + 0.2, 0.3), math.log2(8), math.hypot(3, 4), math.comb(5, 2)
    math.prod([1, 2, n]), math.fsum([0.1] * 10), math.copysign(1, -0.0), math.dist([0, 0], [3, 4])
    x * n + y, n * x, x ** n, n ** x, x // n, n - x
    Even(2) + 1, 1 + Even(2), Even(4) * 2, isinstance(Even(1), int), Even(5)
    range(n), range(1, n, 2), list(range(n, 0, -2)), len(range(n)), range(n)[2], range(n)[1:3]
    range(n)[10]
    3 in range(n), range(3) == range(0, 3), range(n).index(4), range(n).count(2), range(n).step
    range(1.5)
    range(0, 5, 0)
    list(reversed(range(3))), sum(range(n)), max(range(n)), hash(range(3)) == hash(range(3))
    slice(1, n), slice(n).stop, slice(1, 10, 2).indices(5), slice(None) == slice(None, None)
    [*range(3)], dict(enumerate(range(2)))
    operator.index(n), operator.add(n, x), operator.mul(2, n), operator.truediv(n, 2)
    operator.lt(1, n), operator.not_(n), operator.truth(n), operator.is_(n, n), operator.neg(n)
    operator.contains([1], 1), operator.getitem([1, 2], 1), operator.concat([1], [2])
    operator.countOf([1, 1], 1), operator.indexOf([1, 2], 2), operator.length_hint([1])
    operator.itemgetter(1, 0)([1, 2]), operator.attrgetter("real")(n)
    operator.methodcaller("split", ",")("a,b"), operator.xor(n, 1), operator.inv(n)
    operator.is_not(n, None), operator.floordiv(n, 2), operator.matmul(x, x), operator.pos(n)
    operator.lshift(n, 1), operator.rshift(n, 1), operator.mod(n, 2), operator.pow(n, 2)
    operator.iadd([1], [2]), operator.delitem({1: 2}, 1), operator.ne(n, 1), operator.and_(n, 3)
    """,
)

TABLE["iteration"] = (
    {"a": "[1, 2, 3]", "t": "(x, 5)"},
    """
    list(enumerate(a)), list(enumerate(a, start=5)), dict(enumerate("ab"))
    list(zip(a, t)), list(zip()), list(zip(a)), list(zip(a, "abc", strict=True))
    list(zip(a, t, strict=True))
    list(zip(t, a, strict=True))
    list(map(lambda v: v + 1, a)), list(map(operator.add, a, a)), list(map(str, a))
    list(map(None, a))
    list(filter(None, [0, 1, x.shape])), list(filter(lambda v: v > 1, a))
    list(reversed(a)), list(reversed(t)), list(reversed("ab")), list(reversed(range(3)))
    reversed({1})
    iter(5)
    next(5)
    next(a)
    list(iter(a)), iter(iter(a)).__next__(), list(iter([1, 2].pop, 1))
    [i for i in a if i > 1 for j in range(i)], {i: j for i, j in zip(a, a)}, {i for i in a}
    [[j * i for j in a] for i in a], [(y, y + 1) for i in a if (y := i * 2) > 2]
    sum(i for i in a), any(i > 2 for i in a), all(i for i in a), sorted(i for i in a)
    list(i + j for i in a for j in a if i != j)
    next(i for i in a if i > 1), next((i for i in a if i > 5), None)
    next(i for i in a if i > 5)
    [*map(lambda v: v, a)], (*filter(None, a),), {**dict(zip("ab", a))}
    list(chain(a, t)), list(chain.from_iterable([a, a])), list(chain())
    list(islice(count(), 5)), list(islice(a, 1, None)), list(islice(a, 0, 3, 2)), list(islice(a, 0))
    list(islice(a, -1))
    list(accumulate(a)), list(accumulate(a, operator.mul)), list(accumulate(a, initial=10))
    list(accumulate([])), list(accumulate([x, x]))
    list(product(a, "ab")), list(product([0, 1], repeat=2)), list(product())
    list(permutations(a)), list(permutations(a, 2)), list(combinations(a, 2))
    list(combinations_with_replacement(a, 2)), list(combinations(a, 5))
    list(repeat(x, 2)), list(islice(repeat(1), 2)), list(map(pow, a, repeat(2)))
    list(zip_longest(a, t)), list(zip_longest("ab", "c", fillvalue=0)), list(zip_longest())
    list(pairwise(a)), list(pairwise([1])), list(starmap(pow, [(2, 3), (3, 2)]))
    list(takewhile(lambda v: v < 3, a)), list(dropwhile(lambda v: v < 2, a))
    list(filterfalse(lambda v: v > 1, a)), list(filterfalse(None, [0, 1]))
    list(compress("abc", [1, 0, 1])), list(islice(cycle(a), 7)), list(cycle([]))
    [(k, list(g)) for k, g in groupby([1, 1, 2, 1])]
    [(k, list(g)) for k, g in groupby(["a", "bb", "cc"], key=len)]
    [list(i) for i in tee(a)], [next(i) for i in tee(a, 3)]
    list(islice(count(1, 2), 3)), list(islice(count(0.5), 2)), next(count(x.shape[0]))
    functools.reduce(operator.add, a), functools.reduce(lambda p, q: p * q, a, 10)
    functools.reduce(operator.add, [])
    functools.reduce(operator.add, [x, x])
    min(a, default=0), max((i for i in a), key=lambda v: -v), sum((t[1:] for _ in a), ())
    len(list(zip(*[a, a]))), [list(r) for r in zip(*[a, a])]
    list(iter(functools.partial(next, iter([1, 2, 3])), 3))
    dict(map(lambda v: (v, x), a))
    5 in iter(a), 2 in (i for i in a), list(zip(iter(a), iter(a)))
    max(enumerate([3, 9, 4]), key=lambda p: p[1]), min(zip(a, "cba"))
    """,
)

TABLE["collections"] = (
    {
        "o": "OrderedDict(a=1, b=x)",
        "d": "defaultdict(list, a=[1])",
        "c": "Counter('aab')",
        "q": "deque([1, 2, 3], 5)",
        "m": "ChainMap({'a': 1}, {'a': 2, 'b': 3})",
    },
    """
    o["a"], list(o), o.get("zz"), len(o)
    o.move_to_end("a")
    o.move_to_end("b", last=False)
    o.move_to_end("zz")
    o.popitem()
    o.popitem(last=False)
    o.pop("a"), list(o)
    o.update(c=3)
    o.setdefault("z", 1)
    o == OrderedDict(a=1), OrderedDict(a=1, b=2) == OrderedDict(b=2, a=1)
    OrderedDict(a=1, b=2) == dict(b=2, a=1)
    o | {"q": 1}, type(o | {"q": 1})
    {"q": 1} | o, type({"q": 1} | o), o | d, d | o, type(d | o), type(o | d)
    d | {"b": 1}, ({"b": 1} | d).default_factory, type({"b": 1} | d)
    NotingInOrder.fromkeys("ab", x)
    NotingInOrder().setdefault("a", 1)
    NotingInOrder(a=1) | {"b": 2}
    o != OrderedDict(b=x, a=1), o == OrderedDict(a=1, b=x)
    OrderedDict(a=1, b=2) != OrderedDict(b=2, a=1)
    o.setdefault(key="k", default=2), o.popitem(False), o.popitem(last=True), o.popitem()
    list(reversed(o)), list(o.items()), list(o.values())
    o.copy(), OrderedDict.fromkeys("ab"), OrderedDict([("a", 1)])
    repr(OrderedDict(a=1))
    del_item(o)
    d["new"], list(d)
    d["a"].append(2)
    d["n"].append(x)
    d.get("zz"), "zz" in d, d.default_factory
    defaultdict(int)["a"], defaultdict(lambda: 5)["q"], defaultdict(list)
    defaultdict(None)["a"]
    d.copy(), type(d.copy()), d | {"b": 1}, dict(d)
    d.setdefault("k", 1), d.pop("a")
    defaultdict(5)
    repr(defaultdict(int, a=1))
    c["a"], c["zz"], c.most_common(1), c.most_common(), list(c.elements()), c.total()
    c.update("bb")
    c.subtract("ab")
    c + Counter("a"), c - Counter("a"), c & Counter("ab"), c | Counter("z"), +c, -c
    Counter(a=1) == Counter(a=1, b=0), Counter(a=1) <= c, Counter([1, 1])
    c.copy(), dict(c), sum(c.values()), sorted(c.items()), len(c), repr(Counter(a=1))
    Counter({"a": 2}, b=1), Counter()
    q.append(4)
    q.appendleft(0)
    q.extend([4, 5, 6])
    q.extendleft([4, 5, 6])
    q.pop()
    q.popleft()
    deque().pop()
    deque().popleft()
    q.rotate(1)
    q.rotate(-1)
    q.clear()
    q.remove(2)
    q.remove(9)
    q.reverse()
    q.insert(1, x)
    deque([1], 1).insert(0, 5)
    q.index(2), q.count(1), len(q), q.maxlen, bool(q), 3 in q
    q.index(9)
    q[0], q[-1], list(q), list(reversed(q)), q == deque([1, 2, 3]), q != deque()
    q[7]
    q[0:1]
    q.__setitem__(0, 5)
    q.__delitem__(0)
    q.copy(), q + deque([1]), q * 2, deque("ab"), deque(maxlen=2), deque([1, 2, 3], maxlen=2)
    q < deque([2]), repr(deque([1])), repr(deque([1], 2)), sum(q), max(q)
    q.__iadd__([7])
    q + [1]
    hash(q)
    m["a"], m["b"], m.get("zz"), len(m), list(m), "b" in m, m.maps
    m["zz"]
    m.__setitem__("n", x)
    m.pop("a"), m.maps[0]
    m.new_child({"c": 1})["c"], m.parents["a"], dict(m), list(m.items())
    UserDict(a=1)["a"], UserList([1, 2])[0], len(UserDict())
    """,
)

TABLE["types"] = (
    {"n": "5", "p": "Named(1)", "a": "[1]", "g": "Grid()"},
    """
    type(n), type(a), type(x), type(None), type(p), type(g), type(type(n)), type(len)
    type(n) is int, type(a) == list, type(x) is torch.Tensor, type(g).__name__
    isinstance(n, int), isinstance(n, (str, int)), isinstance(n, int | str), isinstance(a, Sequence)
    isinstance(n, bool), isinstance(x, torch.Tensor), isinstance(p, tuple), isinstance(None, int)
    isinstance({}, Mapping), isinstance(g, Grid), isinstance(len, types.BuiltinFunctionType)
    isinstance(a, typing.Iterable), isinstance(n, typing.Hashable)
    isinstance(lambda: 1, types.FunctionType)
    isinstance(n, 5)
    isinstance(n, (int, (str, float))), isinstance(n, ())
    issubclass(bool, int), issubclass(int, (str, object)), issubclass(list, Sequence)
    issubclass(5, int)
    callable(len), callable(n), callable(Grid), callable(g), callable(lambda: 1), callable(a.append)
    callable(x), callable(x.sum), callable(type(x)), hasattr(x, "__call__"), callable(x.grad)
    hasattr(n, "real"), hasattr(g, "zz"), hasattr(a, "append"), hasattr(x, "shape"), hasattr(g, 5)
    getattr(n, "real"), getattr(g, "zz", 7), getattr(a, "append")(2), getattr(x, "shape")
    getattr(g, "zz")
    int.__name__, Grid.__module__, Grid.__qualname__, list.__mro__, bool.__bases__, Grid.__doc__
    g[1], g[1:2], g[1, 2], g[...], g[1:2, ::3], g[x.shape[0]]
    g["a":"b"].start
    None is None, Ellipsis is ..., NotImplemented is NotImplemented
    list[int], dict[str, int], int | None, tuple[int, ...]
    typing.cast(int, n), typing.get_origin(list[int])
    copy.copy(a), copy.deepcopy([a, a]), copy.copy(p), copy.deepcopy({"k": (a, x.shape)})
    copy.copy(a) is a, copy.deepcopy(n) is n
    json.dumps({"a": [1, None, True], "b": "c"}), json.loads('{"a": [1, 2.5]}')
    json.loads("{")
    pickle.dumps({}), pickle.dumps({"a": 1, "b": "c"}), pickle.dumps((1, 2.5, None, True, 2**70))
    pickle.dumps([b"x", "x"], protocol=2), pickle.dumps("a"), pickle.dumps(-1)
    re.match(r"(\\w+) (\\w+)", "ab cd").groups(), re.sub("a", "b", "aaa", count=2)
    re.match("x", "y"), re.split(",", "a,b"), re.findall(r"\\d+", "1 22"), re.escape("a.b")
    re.compile("(?P<k>a)").search("ba").group("k"), re.compile("a").pattern
    re.compile("(")
    [m.group() for m in re.finditer("a.", "abac")], re.fullmatch("a+", "aa") is not None
    hash(n), hash(Grid) == hash(Grid), hash("a") == hash("a"), hash(None) == hash(None)
    id(a) == id(a), id(a) == id([1]), id(g) != id(a), id(n) == id(n)
    len(dir(Grid)) > 5, "append" in dir(a), vars(Ranked(3)), Ranked(3).__dict__
    vars(5)
    functools.partial(operator.add, 1)(n), functools.partial(max, key=len)(["a", "bb"])
    functools.partial(operator.add, 1).args, functools.partial(int, base=2)("101")
    functools.partial(operator.add, 1).func is operator.add
    int.__add__(n, 1), list.append(a, 5), str.lower("A"), object.__eq__(g, g), dict.get({}, 1, 2)
    len(5)
    len(x), abs(x), x[0], x.tolist
    n.__class__, a.__class__ is list, x.__class__, g.__class__.__name__, type(n).__class__
    bool(Grid), bool(g), bool(None), not g
    types.SimpleNamespace(a=1, b=x).b, types.SimpleNamespace(a=1)
    max(Ranked(1), Ranked(2), key=lambda r: r.rank).rank
    Ranked(1) < Ranked(2), Ranked(2) > Ranked(1)
    Ranked(1) <= Ranked(2)
    Ranked(1) == Ranked(1), Ranked(1) != Ranked(1), g == g
    g + 1
    1 + g
    abs(n, 1), abs(n)
    abs(x, shift=1)
    len(a, a), isinstance(a)
    isinstance(n, 5)
    isinstance(n, list[int])
    isinstance(n, (int, 5)), isinstance(a, int | list), issubclass(int, (int, 5))
    issubclass(n, int)
    issubclass(int, n)
    a.append(1, 2)
    a.append(item=1)
    a.append.__func__
    a.__len__.__func__
    {"k": 1}[type("Unhashable", (str,), {"__eq__": lambda s, o: False})("k")]
    g.zz
    g()
    len(g)
    -g
    """,
)


TABLE["keywords named as parameters of the compiler's own functions"] = (
    {"d": "{}", "t": "Taking(machine=1, cls=2)"},
    """
    dict(machine=1, mapping=x), OrderedDict(machine=1, mapping=2)
    defaultdict(None, machine=1, target=2), Counter(machine=1, mapping=2)
    d.update(machine=1, mapping=x)
    Taking(machine=1, cls=x, function=3, arguments=4, keywords=5).keywords
    Taking.__call__(machine=1, cls=x), t(machine=1, mapping=x), t.keywords
    types.SimpleNamespace(machine=1, cls=2, target=x)
    functools.partial(dict, machine=1, function=x)(cls=2)
    "{machine} {function} {string}".format(machine=1, function=2, string=3)
    (lambda **names: names)(machine=1, function=x, locals=2)
    """,
)


TABLE["partial"] = (
    {"f": "functools.partial(dict, a=1)", "g": "functools.partial(max, 2, x)"},
    """
    f(), f(b=x), f(a=2), g.args, g.func, f.args, g.keywords
    f.keywords is f.keywords, f.keywords.update(b=x), f(), f.keywords
    functools.partial(f, b=2)(), functools.partial(f, b=2).func, f.keywords
    f.keywords.pop("a"), f(), functools.partial(f)()
    f.keywords.__setitem__("self", f), f().keys(), f
    """,
)


def del_item(mapping: Any) -> None:
    del mapping["a"]


NAMES["del_item"] = del_item


def _lines() -> Iterator[Any]:
    for theme, (names, text) in TABLE.items():
        for line in text.strip().splitlines():
            for given in (False, True):
                where = "given" if given else "made"
                yield pytest.param(names, line.strip(), given, id=f"{theme}-{where}-{line.strip()}")


@pytest.mark.parametrize(("names", "line", "given"), list(_lines()))
def test_line(names: dict[str, str], line: str, given: bool) -> None:
    with torch.no_grad():
        arguments = {name: eval(text, NAMES, {"x": X}) for name, text in names.items()}
        body = [f"{name} = {text}" for name, text in names.items()] * (not given)
        source = [
            f"def line(x, {', '.join(names) if given else '*'}):".replace(", *)", ")"),
            *[f"    {each}" for each in body],
            "    try:",
            f"        result = {line}",
            "    except Exception as error:",
            "        result = type(error), error.args",
            f"    return result, {', '.join(names)}, x",
        ]
        space = dict(NAMES)
        exec(compile("\n".join(source), "<line>", "exec"), space)
        check(space["line"], X, *(arguments.values() if given else ()))
