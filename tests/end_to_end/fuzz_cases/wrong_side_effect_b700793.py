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
        try:
            for i5 in deleg(2):
                i24 = int(f"{5}-{k:>3}".center(6, "*"))
            else:
                pass
        except ValueError as e34:
            LOG.append(str(e34))
        finally:
            pass

    def set_cell(v):
        pass

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
X = fill(5, (3, 2), torch.float32, "integers").requires_grad_()
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Child(3)
N = 2
S = "ab"


def make(number):
    return [number]


def drive(f, number):
    if number == 0:
        return f(X, N, S, LST, D, OBJ, 5, 6)


if __name__ == "__main__":
    show(__file__)
