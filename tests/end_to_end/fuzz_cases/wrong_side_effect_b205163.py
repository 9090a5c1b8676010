import collections
import math

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

    def __contains__(self, v):
        return v in self.items

    def __iter__(self):
        return iter(self.items[:20])

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


Pair = collections.namedtuple("Pair", ["left", "right"])


class Mod(nn.Module):
    def forward(self, t):
        return t + self.scale + self.weight.detach()


def gen(n):
    try:
        for i in range(n):
            got = yield (i * 2)
            if got:
                yield got
    finally:
        LOG.append(f"gen {n} closed")


def outer():
    cell = 4

    def tmap(t, a):
        return t + a * cell

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        global G_INT, G_FLAG, G_STR
        nonlocal cell
        f.calls = getattr(f, "calls", 0) + 1
        print(tuple(x.shape))
        for i11 in gen(n % 4):
            if bool(x.sum() > cell):
                break
        d.update(a=type(obj).__name__.find("b"))
        d.update(a=int(math.floor(float(k))))
        b26 = x.requires_grad
        try:
            t27 = rest
            if G_FLAG:
                return (x, 2)
        except ValueError as e36:
            LOG.append(type(e36).__name__)
        finally:
            for i38k, i37 in list(d.items())[:4]:
                pass
            else:
                if s == repr(list(gen(-3 % 4))):
                    k -= abs(-3)
                else:
                    pass
        return s

    def set_cell(v):
        nonlocal cell
        cell = v

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
mod = Mod()
X = fill(5, (4,), torch.float32, "integers")
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Meta(2)
OBJ0 = OBJ
N = 2
S = "ab"


class Watch:
    pass


WATCH = Watch()


def make(number):
    return [number]


def drive(f, number):
    if number == 0:
        return f(X, N, S, LST, D, OBJ)


if __name__ == "__main__":
    show(__file__)
