import math

import torch

from fusewright.fuzz import fill, show

DYNAMIC = None
CALLS = [dict(number=0), dict(number=1)]
STATE = (
    "X",
    "LST",
    "D",
    "OBJ",
    "LOG",
)


LOG = []


class Meta:
    def __init__(self, n=1):
        pass


def kwonly(a, b=2, /, c=3, *, d=4):
    return a * 1000 + b * 100 + c * 10 + d


def gen(n):
    try:
        for i in range(n):
            got = yield (i * 2)
    finally:
        LOG.append(f"gen {n} closed")


def outer():

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        i2 = (l3 := list(gen(kwonly(3, 5, d=n) % 4)))[0]
        x.add_(math.gcd(i2, 6))

    def set_cell(v):
        pass

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
X = fill(5, (4,), torch.float32, "integers").requires_grad_()
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Meta(1)
S = "ab"


def make(number):
    return [number]


def drive(f, number):
    global N, X
    if number == 0:
        N = -4
        return f(X, N, S, LST, D, OBJ, fl=2.0)
    if number == 1:
        X = X[1:]
        return f(X, N, S, LST, D, OBJ, w=1)


if __name__ == "__main__":
    show(__file__)
