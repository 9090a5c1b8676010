"""The phrases that random Python programs are made of: expressions by type, statements, blocks.

A capital letter in braces stands for an expression of that type, a small one for a variable:

    T tensor   I int   B bool   S str   L list of ints   O object

`{=I}` is a variable that the statement sets, `{block}` a block of statements, indented. All tensors
have the shape of x, and hold small integers, so that results are exact.
"""

from __future__ import annotations

from typing import Final

Phrases = tuple[str, ...]

EXPRESSIONS: Final[dict[str, Phrases]] = {
    "I": (
        *("{i}", "n", "k", "1", "2", "-1", "0", "5"),
        "{I} + {I}",
        "{I} - {I}",
        "({I} * {I}) % 11",
        "-({I})",
        "abs({I})",
        "len({L})",
        "len({S})",
        "{S}.count('a')",
        "x.shape[0]",
        "{T}.shape[-1]",
        "{T}.dim()",
        "{T}.numel() % 5",
        "obj.n",
        "{O}.double",
        "{O}.bump()",
        "obj.bump(by={I})",
        "Meta.twice({I})",
        "sum({L})",
        "max({L}, default=0)",
        "min([*{L}, 3])",
        "{L}[-1]",
        "{L}[{I}]",
        "d.get('a', {I})",
        "d['a']",
        "d['b']",
        "int({B})",
        "divmod({I}, 3)[1]",
        "{I} // ({I} or 1)",
        "{I} // {I}",
        "{I} % 3",
        "{I} ^ 3",
        "{I} if {B} else {I}",
        "rec({I} % 5)",
        "star({I}, *{L}, k=2)",
        "star({I}, *rest, **kw)",
        "kwonly({I}, c={I})",
        "kwonly(1, 2, d={I})",
        "next(iter({L}), 0)",
        "functools.reduce(operator.add, {L}, 0)",
        "functools.partial(star, {I})(k={I})",
        "(lambda a, b={I}: a + b)({I})",
        "decorated({I})",
        "remember({I})",
        "fails({I})",
        "int('12')",
        "int({S})",
        "math.gcd({I}, 6)",
        "int(math.floor(fl))",
        "hash((3, 2)) % 7",
        "sorted([*{L}, 1])[0]",
        "Pair({I}, 2).left",
        "Point({I}).norm() % 13",
        "dataclasses.replace(Point({I}), y=3).y",
        "[*{L}, 1].index(1)",
        "sum(a * b for a, b in zip({L}, range(9))) % 17",
        "obj[0]",
        "len(obj)",
        "obj + {I}",
        "getattr(obj, 'missing', {I})",
        "getattr(obj, 'flag', {I}) + 0",
        "len({L}[::2])",
        "len(set({L}))",
        "sum(v for v in gen({I} % 4))",
        "G_INT",
        "cell",
        "int({T}.sum()) % 5",
        "int({T}.max().item()) % 7",
        "len(rest)",
        "len(kw)",
        "ord({S}[0])",
        "operator.itemgetter(0)([{I}])",
        "{L}.index({I})",
        "[{I}, {I}].pop()",
        "{S}.find('b')",
        "(1, {I}, 3)[{I} % 3]",
        "next(v for v in {L} if v > {I})",
        "obj.method_of_child({I})",
        "Slotted({I}).a",
        "min({I}, {I}, key=lambda v: -v)",
        "round(fl)",
    ),
    "T": (
        *("x", "x", "{t}", "{t}"),
        "{T} + {T}",
        "({T} - {T}).clamp(-40, 40)",
        "({T} * {I}).clamp(-40, 40)",
        "{T} + {I}",
        "{I} - {T}",
        "helper({T}, {I})",
        "torch.relu({T})",
        "{T}.abs()",
        "{T}.neg()",
        "{T}.clone()",
        "{T}.flip(0)",
        "{T}[:]",
        "{T}.view({T}.shape)",
        "torch.where({T} > {I}, {T}, {T})",
        "torch.ones_like({T})",
        "torch.full_like({T}, {I})",
        "torch.zeros(x.shape) + {I}",
        "mod({T})",
        "obj.apply({T})",
        "obj.apply({T}, k={I})",
        "[{T}, {T}][{I} % 2]",
        "twice(lambda t: t + {I}, {T})",
        "functools.reduce(torch.maximum, [{T}, {T}])",
        "torch.stack([{T}, {T}]).sum(0)",
        "sum([{T}, {T}])",
        "scaled({T}, {I})",
        "G_FUNCTION({T}, {I})",
        "{T} * (1 if {B} else 2)",
        "({T} if {B} else {T})",
        "torch.add({T}, {T}, alpha=2).clamp(-40, 40)",
        "{T}.sum(0, keepdim=True).clamp(-40, 40).expand(x.shape)",
        "getattr({T}, 'abs')()",
        "(lambda t, *, m={I}: t + m)({T})",
        "{T}.detach()",
        "{'one': {T}, 'two': {T}}['one']",
        "tuple(t for t in ({T}, {T}))[-1]",
        "torch.tensor({L}).sum().float() + {T}",
        "torch.cat([{T}, {T}])[: x.shape[0]]",
    ),
    "B": (
        "flag",
        "not {B}",
        "{I} > {I}",
        "{I} == {I}",
        "{I} <= {I} < {I}",
        "{B} and {B}",
        "{B} or {B}",
        "{B} is {B}",
        "'a' in {S}",
        "{I} in {L}",
        "'k' in d",
        "{S}.startswith('a')",
        "{S} < 'b'",
        "isinstance({O}, Child)",
        "isinstance({I}, (int, str))",
        "issubclass(type({O}), Meta)",
        "any(v > {I} for v in {L})",
        "all({L})",
        "{O} is obj",
        "bool({L})",
        "bool({O})",
        "hasattr(obj, 'cache')",
        "callable({O})",
        "bool(({T} > {I}).any())",
        "bool({T}.sum() > {I})",
        "obj == Meta({I})",
        "{L} == {L}",
        "{L} < {L}",
        "{T} is x",
        "{T}.requires_grad",
        "{T}.is_contiguous()",
        "{S}.isdigit()",
        "({I}).bit_length() > 1",
        "len({L}) > 2",
        "None is not obj",
        "({I}, {S}) == (1, 'ab')",
        "operator.lt({I}, {I})",
    ),
    "S": (
        *("s", "'ab'", "'a1'", "'7'", "G_TEXT", "{s}"),
        "({S} + 'x')[:8]",
        "{S}.upper()",
        "{S}[::-1]",
        "{S}.replace('a', 'b')",
        "{S}.title()",
        "f'{{i}:>3}|{{s}!r}'",
        "f'{fl:.2f}'",
        "'%d:%s' % ({I}, {S})",
        "'{} {}'.format({I}, {S})[:9]",
        "str({I})",
        "repr({L})[:9]",
        "','.join(map(str, {L}))[:9]",
        "type(obj).__name__",
        "type({I}).__name__",
        "{S}[{I}]",
        "chr(97 + {I} % 5)",
        "format({I}, '04d')",
        "repr(obj)",
        "helper.__name__",
        "'-'.join({S})[:9]",
        "'yes' if {B} else 'no'",
        "str({B})",
        "{S}.zfill(4)",
        "' '.join(sorted(d))",
        "{S}.partition('b')[0]",
        "{S} * ({I} % 3)",
        "str(tuple({L}))[:9]",
    ),
    "L": (
        *("lst", "{l}", "[1, 2]", "[]"),
        "[{I}, {I}]",
        "list(range({I} % 4))",
        "[v * 2 for v in {L}][:6]",
        "[v for v in {L} if v > {I}]",
        "[v + {I} for v in {L}][:6]",
        "sorted({L}, reverse={B})",
        "sorted({L}, key=lambda v: -v)",
        "{L}[1:]",
        "{L}[::-1]",
        "({L} + [{I}])[:6]",
        "list(reversed({L}))",
        "list(map(lambda v: v + {I}, {L}))[:6]",
        "list(filter(None, {L}))",
        "list(gen({I} % 4))",
        "list(deleg({I} % 3))",
        "list(itertools.chain({L}, [7]))[:6]",
        "[a for row in [{L}, {L}] for a in row][:6]",
        "list(d.values())[:6]",
        "list(dict.fromkeys({L}))",
        "[i for i, v in enumerate({L}) if v]",
        "list(obj.items)[:6]",
        "[*obj][:6]",
        "x.flatten()[:2].int().tolist()",
        "sorted(set({L}))",
        "list(itertools.accumulate({L}))[:6]",
        "list(itertools.islice(itertools.count({I}), 3))",
        "[t.dim() for t in x.unbind(0)]",
        "[*rest]",
        "list(zip(*[{L}, {L}]))[:0]",
        "list(collections.deque({L}, maxlen=2))",
        "[len(key) for key in d]",
        "[v for v in takewhile_positive({L})]",
        "{L} * ({I} % 3)",
    ),
    "O": (
        *("obj", "obj", "{o}"),
        "Meta({I})",
        "Child({I})",
        "Child({I}, extra={I})",
        "Meta.make({I})",
        "type(obj)({I})",
        "copy.copy(obj)",
    ),
}

STATEMENTS: Final[Phrases] = (
    *("{=I} = {I}",) * 5,
    *("{=T} = {T}",) * 8,
    *("{=B} = {B}",) * 2,
    *("{=S} = {S}",) * 2,
    *("{=L} = {L}",) * 3,
    "{=O} = {O}",
    "{i} += {I}",
    "{i} -= 1",
    "n = {I}",
    "x = {T}",
    "x = {T}",
    "lst.append({I})",
    "lst.append({I})",
    "lst.extend({L}[:4])",
    "lst += {L}[:2]",
    "lst.insert(0, {I})",
    "lst.pop()",
    "lst.sort()",
    "lst.reverse()",
    "lst.clear()",
    "lst.remove({I})",
    "del lst[-1:]",
    "lst[0] = {I}",
    "lst[1:2] = [{I}, {I}]",
    "{=I} = {L}.pop()",
    "d['k'] = {I}",
    "d[{S}] = {I}",
    "d.update(a={I}, z=1)",
    "d.pop('a', None)",
    "d.setdefault('z', {I})",
    "del d['a']",
    "d.clear()",
    "d |= {'m': {I}}",
    "{=I} = d.popitem()[1]",
    "LOG.append({I})",
    "LOG.append({I})",
    "LOG.append({S})",
    "LOG.append(list({L}))",
    "LOG.append({T}.shape[0])",
    "obj.n = {I}",
    "obj.n += 1",
    "obj.double = {I}",
    "obj.items.append({I})",
    "obj.cache = {T}",
    "setattr(obj, 'tag', {I})",
    "obj.table['q'] = {I}",
    "del obj.flag",
    "obj.__dict__['odd'] = {I}",
    "obj[0] = {I}",
    "obj = {O}",
    "Meta.shared += 1",
    "G_INT = {I}",
    "G_LIST.append({I})",
    "G_TEXT = {S}[:5]",
    "cell += 1",
    "cell = {I}",
    "f.calls = getattr(f, 'calls', 0) + 1",
    "x.add_({I})",
    "x[0] = {I}",
    "x[0] += 1",
    "x.mul_(2).clamp_(-40, 40)",
    "x += {T}",
    "{t}.add_(1)",
    "print({I})",
    "print({T})",
    "graph_break()",
    "assert {B}",
    "assert {I} > {I}, {S}",
    "remember({I})",
    "mod.scale = {I}",
    "mod.count += 1",
    "{=I}, *{=L} = [{I}, *{L}]",
    "{=I}, {=I} = {I}, {I}",
    "for_later = weakref.ref(obj)\nLOG.append(for_later() is obj)",
    "part = gen({I} % 4)\n{=I} = next(part, -1)",
    "part = gen(3)\nnext(part)\npart.close()",
    "part = gen(3)\nnext(part)\n{=I} = part.send(5)",
    "part = iter({L})\n{=I} = sum(part)",
    "LOG.append(next(iter(d), None))",
    "del {i}",
    "sys_state = torch.is_grad_enabled()\nLOG.append(sys_state)",
    "raise MyError({S})",
    "LOG.extend(sorted(d))",
    "kw['more'] = {I}",
    "OBJ.n = {I}",
)

BLOCKS: Final[Phrases] = (
    *("if {B}:\n{block}",) * 4,
    *("if {B}:\n{block}else:\n{block}",) * 3,
    "if {B}:\n{block}elif {B}:\n{block}else:\n{block}",
    *("for {=I} in range({I} % 4):\n{block}",) * 3,
    "for {=I} in {L}[:4]:\n{block}",
    "for {=I} in gen(3):\n{block}",
    "for {=I} in gen(3):\n{block}    if {B}:\n        break\n",
    "for {=I} in deleg(2):\n{block}    if {B}:\n        continue\n    LOG.append('went on')\n",
    "for {=I}, {=I} in enumerate({L}[:3]):\n{block}",
    "for {=I}, {=I} in zip({L}[:3], [4, 5]):\n{block}else:\n{block}",
    "for row in x:\n    LOG.append(row.dim())\n{block}",
    "for key in list(d):\n    LOG.append(key)\n{block}",
    "count = 0\nwhile count < 3:\n    count += 1\n{block}    if {B}:\n        break\n",
    "while {I} > 3 and len(LOG) < 4:\n    LOG.append(0)\n{block}",
    "try:\n{block}except ValueError as error:\n    LOG.append(str(error))\n",
    "try:\n{block}except (KeyError, IndexError) as error:\n    LOG.append(repr(error))\n{block}",
    "try:\n{block}    raise MyError({S})\nexcept MyError as error:\n    LOG.append(error.code)\n",
    "try:\n{block}except Exception as error:\n    LOG.append(type(error).__name__)\n",
    "try:\n{block}except AttributeError:\n{block}else:\n{block}finally:\n    LOG.append('end')\n",
    "try:\n{block}finally:\n{block}",
    "try:\n{block}    fails({I})\nexcept MyError:\n    raise ValueError({S}) from None\n",
    "with Entered('a'):\n{block}",
    "with Entered('b', True) as entered:\n{block}    fails({I})\n",
    "with managed({I}) as {=I}:\n{block}",
    "with torch.no_grad():\n{block}",
    "with contextlib.suppress(ValueError, KeyError):\n{block}",
    "with Entered('c'), managed(2):\n{block}",
    "def inner(a, b={I}, *more, c={I}, **options):\n    nonlocal_free = {I}\n"
    "    return a * 3 + b + c + nonlocal_free + len(more)\n{=I} = inner({I}, c=2) % 19\n",
    "def each(t):\n    nonlocal cell\n    cell += 1\n    return t + cell\n{=T} = each({T})\n",
    "def series():\n    LOG.append('series')\n    yield {I}\n    yield {I}\n{=I} = sum(series())\n",
    "class Local(Meta):\n    size = {I}\n    def apply(self, t, k=1):\n        return t + self.size"
    "\n{=T} = Local({I}).apply({T})\n",
    "match {I} % 3:\n    case 0:\n        LOG.append('zero')\n    case 1 | 2 as other:\n"
    "        LOG.append(other)\n",
    "match {L}:\n    case [first, *_]:\n        LOG.append(first)\n    case []:\n"
    "        LOG.append('none')\n",
    "if {B}:\n    return {T}, {I}\n",
    "closures = [lambda t, j=j: t + j for j in range({I} % 3)]\nfor closure in closures:\n"
    "    x = closure(x)\n",
)

MAY_RAISE: Final = frozenset(
    {
        *("{L}[-1]", "{L}[{I}]", "d['a']", "d['b']", "{I} // {I}", "fails({I})", "int({S})"),
        *("{S}[{I}]", "{L}.index({I})", "next(v for v in {L} if v > {I})", "ord({S}[0])"),
        *("obj.method_of_child({I})", "lst.pop()", "lst.remove({I})", "{=I} = {L}.pop()"),
        *("{=I} = d.popitem()[1]", "del d['a']", "d.clear()", "del obj.flag", "lst[0] = {I}"),
        *("assert {B}", "assert {I} > {I}, {S}", "raise MyError({S})", "del {i}"),
    }
)
"""Phrases that often end a program; they are taken less often."""

ABANDONS: Final = frozenset(
    {
        "part = gen({I} % 4)\n{=I} = next(part, -1)",
        "part = gen(3)\nnext(part)\n{=I} = part.send(5)",
        "for {=I} in gen(3):\n{block}    if {B}:\n        break\n",
        "for {=I} in gen(3):\n{block}",
        "for {=I} in deleg(2):\n{block}    if {B}:\n        continue\n    LOG.append('went on')\n",
    }
)
"""Phrases that may leave a generator suspended, which is closed when nothing refers to it any more:
only some programs have them, since when that is hides all else.
"""

ALWAYS: Final = """\
import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import weakref

import torch
from torch import nn

from fusewright import graph_break
from fusewright.fuzz import fill, show

G_INT = 3
G_LIST = [1, 2]
G_TEXT = "glob"
LOG = []
"""
"""The beginning of each program."""

DEFINITIONS: Final[dict[str, str]] = {
    "Entered": """class Entered:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append("enter " + self.name)
        return self

    def __exit__(self, kind, value, trace):
        LOG.append(f"exit {self.name} {kind.__name__ if kind else None} {value}")
        return self.swallow and kind is not None and issubclass(kind, ValueError)
""",
    "managed": """@contextlib.contextmanager
def managed(tag):
    LOG.append(f"open {tag}")
    try:
        yield tag + 1
    finally:
        LOG.append(f"close {tag}")
""",
    "Meta": """class Meta:
    shared = 2

    def __init__(self, n=1):
        self.n = n
        self.items = [n, n + 1]
        self.flag = True
        self.table = {"k": n}

    @property
    def double(self):
        return self.n * 2

    @double.setter
    def double(self, value):
        LOG.append(f"set {value}")
        self.n = value // 2

    def bump(self, by=1):
        self.n = (self.n + by) % 9
        return self.n

    @classmethod
    def make(cls, n):
        return cls(n)

    @staticmethod
    def twice(v):
        return v * 2

    def apply(self, t, k=1):
        return t + self.n + k

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    def __setitem__(self, i, v):
        self.items[i] = v

    def __iter__(self):
        return iter(self.items[:9])

    def __call__(self, v):
        return v + self.n

    def __eq__(self, other):
        return isinstance(other, Meta) and self.n == other.n

    def __hash__(self):
        return hash(self.n)

    def __add__(self, other):
        return self.n + (other.n if isinstance(other, Meta) else other)

    def __bool__(self):
        return self.n != 0

    def __repr__(self):
        return f"{type(self).__name__}({self.n})"
""",
    "Child": """class Child(Meta):
    shared = 5

    def __init__(self, n=1, extra=4):
        super().__init__(n)
        self.more = extra

    def bump(self, by=1):
        LOG.append("child bump")
        return super().bump(by + 1)

    def method_of_child(self, v):
        return v + self.more

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(f"no {name}")
""",
    "Slotted": """class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a, b=0):
        self.a, self.b = a, b
""",
    "Point": """@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)

    def norm(self):
        return self.x * self.x + self.y * self.y
""",
    "Pair": """Pair = collections.namedtuple("Pair", ["left", "right"])
""",
    "MyError": """class MyError(ValueError):
    def __init__(self, message, code=7):
        super().__init__(message)
        self.code = code
""",
    "Mod": """class Mod(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2
        self.weight = nn.Parameter(torch.tensor(3.0))
        self.register_buffer("count", torch.tensor(0.0))

    def forward(self, t):
        if self.training:
            self.count += 1
            return t + self.scale
        return t + self.scale + self.weight.detach()
""",
    "star": """def star(a, *rest, k=1, **kw):
    return a + len(rest) * k + len(kw)
""",
    "kwonly": """def kwonly(a, b=2, /, c=3, *, d=4):
    return (a * 8 + b * 4 + c * 2 + d) % 23
""",
    "rec": """def rec(n):
    return 1 if n <= 0 else n + rec(n - 1)
""",
    "gen": """def gen(n):
    try:
        for i in range(n):
            got = yield i * 2
            if got:
                yield got
    finally:
        LOG.append(f"gen {n} closed")
""",
    "deleg": """def deleg(n):
    r = yield from gen(n)
    yield -1
    return r
""",
    "takewhile_positive": """def takewhile_positive(values):
    for value in values:
        if value <= 0:
            return
        yield value
""",
    "helper": """def helper(t, a):
    return t + a
""",
    "twice": """def twice(function, t):
    return function(function(t))
""",
    "fails": """def fails(v):
    if v > 2:
        raise MyError(f"too large: {v}")
    return v
""",
    "remember": """def remember(v, seen=[]):
    seen.append(v)
    return len(seen)
""",
    "decorated": """def deco(fn):
    @functools.wraps(fn)
    def inner(*args, **kw):
        LOG.append(fn.__name__)
        return fn(*args, **kw) + 1

    return inner


@deco
def decorated(v, w=2):
    return v * w % 13
""",
}
"""Definitions that phrases mention: each as text, in the order in which they may refer to one
another.
"""

SETTING: Final = """\
mod = Mod()
G_FUNCTION = helper
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Meta(2)
"""
"""The first statements of a program, behind its definitions."""
