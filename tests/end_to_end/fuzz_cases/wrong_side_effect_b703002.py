import torch

from fusewright.fuzz import fill, show

DYNAMIC = None
CALLS = [dict(number=0)]
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


class Child(Meta):
    pass


def gen(n):
    try:
        for i in range(n):
            got = yield (i * 2)
    finally:
        LOG.append(f"gen {n} closed")


def deleg(n):
    r = yield from gen(n)


def outer():

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        t39 = (0, list(deleg(-2 % 3))[-1])
        x *= k

    def set_cell(v):
        pass

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
X = fill(5, (4,), torch.float32, "integers").requires_grad_()
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Child(3)
N = 2
S = "ab"


def make(number):
    return [number]


def drive(f, number):
    global X
    if number == 0:
        X = X[1:]
        LST[0] = 6
        return f(X, N, S, LST, D, OBJ, 1, k=0, w=2)


if __name__ == "__main__":
    show(__file__)
