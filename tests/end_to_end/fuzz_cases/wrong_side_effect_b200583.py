import collections

import torch
from torch import nn

from fusewright.fuzz import fill, show

DYNAMIC = True
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

    def __bool__(self):
        return self.n != 0


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
        for i1 in deleg(2):
            x *= int(fl * 2)
            i15 = 0
        i34 = n % 3
        b42 = isinstance(s, (str, list))
        o73 = obj
        s75 = f"{fl:.2f}"
        n *= lst[-1]
        return (fl, s)

    def set_cell(v):
        nonlocal cell
        cell = v

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
mod = Mod()
X = fill(5, (3, 2), torch.float32, "integers").requires_grad_()
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
    global X
    if number == 0:
        X = X[1:]
        return f(X, N, S, LST, D, OBJ, flag=True)


if __name__ == "__main__":
    show(__file__)
