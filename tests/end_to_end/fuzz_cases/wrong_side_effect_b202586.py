import collections
import dataclasses

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

    def __repr__(self):
        return f"{type(self).__name__}({self.n})"


class Child(Meta):
    shared = 5

    @property
    def double(self):
        return super().double + 1


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)

    def norm(self):
        return self.x * self.x + self.y * self.y


Pair = collections.namedtuple("Pair", ["left", "right"])


class Mod(nn.Module):
    pass


def gen(n):
    try:
        for i in range(n):
            got = yield (i * 2)
            if got:
                yield got
    finally:
        LOG.append(f"gen {n} closed")


def deleg(n):
    r = yield from gen(n)
    yield (-1)
    return r


def outer():
    cell = 4

    def tmap(t, a):
        return t + a * cell

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        global G_INT, G_FLAG, G_STR
        nonlocal cell
        match rest:
            case {"a": int(v0)}:
                i1 = k
            case Point(x=x0, y=y0):
                i1 = -2
            case 0 | 1:
                i1 = k
            case _:
                i1 = -1
        try:
            if flag:
                return ({"p": x.new_zeros(x.shape)}["p"], s)
            o7 = Child.make(x.dim())
        except Exception as e11:
            LOG.append(getattr(e11, "code", None))
        finally:
            for i12 in gen(n % 4):
                if obj is OBJ0:
                    break
                if isinstance(x, Meta):
                    break
        try:
            for i33t in x:
                G_INT = i1
            f.calls = getattr(f, "calls", 0) + 1
        finally:
            i49 = 0
            i49 += 1
            i65 = (l66 := list(deleg((bool(k) + 1) % 3)))[0]
            obj.last = lst
        i85, l86 = (len(lst), lst)
        s95 = repr({"a": round(fl), s: i1 % (i85 or 2)})
        return (x, x, s95)

    def set_cell(v):
        nonlocal cell
        cell = v

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
mod = Mod()
X = fill(5, (3,), torch.float32, "integers")
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
    if number == 0:
        OBJ.flag = not OBJ.flag
        return f(X, N, S, LST, D, OBJ, 1, k=0, w=2)


if __name__ == "__main__":
    show(__file__)
