import collections
import itertools

import torch
from torch import nn

from fusewright.fuzz import fill, show

DYNAMIC = None
CALLS = [dict(number=0)]
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

    def __call__(self, v):
        return v + self.n

    def __hash__(self):
        return hash(self.n)

    def __radd__(self, other):
        return other + self.n

    def __lt__(self, other):
        return self.n < other.n

    def __bool__(self):
        return self.n != 0


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a, b=0):
        self.a, self.b = (a, b)


Pair = collections.namedtuple("Pair", ["left", "right"])


class Mod(nn.Module):
    pass


def star(a, *rest, k=1, **kw):
    return a + sum(rest) * k + len(kw)


def outer():
    cell = 4

    def tmap(t, a):
        return t + a * cell

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        global G_INT, G_FLAG, G_STR
        nonlocal cell
        i2 = star(
            d["a"], *[len(row) for row in itertools.combinations(lst[:3], 2)][:2], k=G_INT, z=1
        )

        def f1(a, b=bool(k) + 1, *more, c=(lambda a, b=k: a + b)(n), **opts):
            nonlocal i2
            i2 += a + len(more)
            return a * b + c + i2 + len(opts)

        i9 = f1((lst * 2)[:6][getattr(obj, "extra", k)], 2)
        try:
            x += getattr(obj, "auto_x", -1)
        except AttributeError as e33:
            LOG.append(getattr(e33, "code", None))
        else:
            T35 = n - x
        print(Slotted(i2).a)
        return [obj]

    def set_cell(v):
        nonlocal cell
        cell = v

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
mod = Mod()
X = fill(5, (3, 2), torch.float32, "integers")
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Meta(1)
OBJ0 = OBJ
N = 2
S = "ab"


class Watch:
    pass


WATCH = Watch()


def make(number):
    return [number]


def drive(f, number):
    global N
    if number == 0:
        N = True
        return f(X, N, S, LST, D, OBJ)


if __name__ == "__main__":
    show(__file__)
