import collections
import functools
import itertools
import math

import torch
from torch import nn

from fusewright.fuzz import fill, show

DYNAMIC = None
CALLS = [dict(number=0), dict(number=1), dict(number=2)]
STATE = (
    "X",
    "LST",
    "D",
    "OBJ",
    "OBJ0",
    "G_INT",
    "G_FLAG",
    "G_LIST",
    "G_DICT",
    "G_STR",
    "LOG",
    "mod",
    "WATCH",
)


G_INT = 3
G_FLAG = True
G_LIST = [1, 2, 3]
G_DICT = {"a": 1, "b": 2}
G_STR = "glob"
LOG = []


class Meta:
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

    def bump(self, by=1, *, times=1):
        self.n += by * times
        return self.n

    @classmethod
    def make(cls, n):
        return cls(n)

    @staticmethod
    def twice(v):
        return v * 2

    def apply(self, t, k=1):
        return t * self.n + k

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    def __setitem__(self, i, v):
        self.items[i] = v

    def __contains__(self, v):
        return v in self.items

    def __iter__(self):
        return iter(self.items[:20])

    def __call__(self, v):
        return v + self.n

    def __eq__(self, other):
        return isinstance(other, Meta) and self.n == other.n

    def __hash__(self):
        return hash(self.n)

    def __add__(self, other):
        return self.n + (other.n if isinstance(other, Meta) else other)

    def __radd__(self, other):
        return other + self.n

    def __lt__(self, other):
        return self.n < other.n

    def __bool__(self):
        return self.n != 0

    def __repr__(self):
        return f"{type(self).__name__}({self.n})"


class Child(Meta):
    shared = 5

    def __init__(self, n=1, extra=4):
        super().__init__(n)
        self.more = extra

    def bump(self, by=1, *, times=1):
        LOG.append("child bump")
        return super().bump(by + 1, times=times)

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(f"no {name}")

    @property
    def double(self):
        return super().double + 1


Pair = collections.namedtuple("Pair", ["left", "right"])


class Mod(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2
        self.weight = nn.Parameter(torch.tensor(3.0))
        self.register_buffer("count", torch.tensor(0.0))

    def forward(self, t):
        if self.training:
            self.count += 1
            return t * self.scale
        return t + self.scale + self.weight.detach()


def rec(n):
    return 1 if n <= 0 else n + rec(n - 1)


def gen(n):
    try:
        for i in range(n):
            got = yield i * 2
            if got:
                yield got
    finally:
        LOG.append(f"gen {n} closed")


def deleg(n):
    r = yield from gen(n)
    yield -1
    return r


def helper(t, a):
    return t + a


def remember(v, seen=[]):
    seen.append(v)
    return len(seen)


def deco(fn):
    @functools.wraps(fn)
    def inner(*args, **kw):
        LOG.append(fn.__name__)
        return fn(*args, **kw) + 1

    return inner


@deco
def decorated(v, w=2):
    return v * w


G_FN = helper


def outer():
    cell = 4

    def tmap(t, a):
        return t + a * cell

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        global G_INT, G_FLAG, G_STR
        nonlocal cell
        i2 = n

        def f1(a, b=(int(math.floor(fl))), *more, c=len(s), **opts):
            nonlocal i2
            i2 += a + len(more)
            return a * b + c + i2 + len(opts)

        i5 = f1(decorated(n, w=3), **{chr(99): 3, chr(122): 1})
        for i7t in x:
            lst.extend(([q16 for row in [[1, 2], lst] for q16 in row]))
        if flag:
            i17, *l18 = [(obj[n]), *lst]
            obj.cache = torch.ones_like((x + x.sum())) * int(fl * 2)
            T27 = G_FN(x, 0)
        f.calls = getattr(f, "calls", 0) + 1
        if flag:
            i29 = 3

            def f28(a, b=(i5 * 6 % 11), *more, c=n, **opts):
                nonlocal i29
                i29 += a + len(more)
                return a * b + c + i29 + len(opts)

            i31 = f28((sorted((lst[::-1]))[len(sorted(lst, reverse=flag)) // 2]))
        elif any(q35 > (next(iter(([i + q37 for i, q37 in enumerate(lst, 0)])), 0)) for q35 in lst):
            i39 = k

            def f38(a, b=i5, *more, c=math.gcd(i5, 6), **opts):
                nonlocal i39
                i39 += a + len(more)
                return a * b + c + i39 + len(opts)

            i41 = f38(n)
            i41 += f38((obj + 6))
            try:
                if flag:
                    cell += 1
                    obj.cache = mod(((lambda t, *, m=i41: t * m)(x)))
                    i52 = int(math.floor(((Pair(i2, 2).left) / rec(i41 % 5))))
                else:
                    t54 = tuple(x.shape)
            except AttributeError as e55:
                LOG.append(type(e55).__name__)
        for i56 in deleg(2):
            d.update(a=(x.shape[0]))
            print(flag)
        try:
            lst.reverse()
            fl -= 1.5
            G_INT = i5
        finally:
            f73 = fl
        x[0] = k // (int(math.floor(fl)))
        if bool((x > -3).any()):
            for i77, i78 in zip(
                (((list(filter(lambda q82: q82 > i5, lst))) * 2)[:6])[:3], list(rest)
            ):
                s87 = "".join(map(str, lst))
                b88 = flag
            else:
                s91 = frozenset((x.flatten()[:2].int().tolist()))
            o95 = Meta(((s.encode().hex()).count("a")))
        elif flag:
            i99 = divmod((decorated(x.numel(), w=3)), 3)[0]
        else:
            b104 = (s.upper().encode().hex()) == (type(obj).__name__)
            s105 = {1, 2}
        l108 = (list(itertools.chain(lst, [7]))).copy()
        T109 = x
        T113 = helper((T109.view(x.shape).view(x.shape)), i5)
        return T113, {1, 2}

    def set_cell(v):
        nonlocal cell
        cell = v

    return f, set_cell, lambda: cell


f, set_cell, get_cell = outer()
mod = Mod()
X = fill(5, (3, 2), torch.float32, "integers").requires_grad_() * 1
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Meta(2)
OBJ0 = OBJ
N = 2
S = "ab"


class Watch:
    @property
    def __dict__(self):
        return {
            "cell": get_cell(),
            "shared": Meta.shared,
            "child": Child.shared,
            "seen": remember.__defaults__[0],
            "f": f.__dict__,
            "x": getattr(X, "__dict__", None),
        }


WATCH = Watch()


def make(number):
    return [number]


def drive(f, number):
    if number == 0:
        return f(X, N, S, LST, D, OBJ, k=3)
    if number == 1:
        OBJ.n += 1
        return f(X, N, S, LST, D, OBJ, flag=True)
    if number == 2:
        return f(X, N, S, LST, D, OBJ)


if __name__ == "__main__":
    show(__file__)
