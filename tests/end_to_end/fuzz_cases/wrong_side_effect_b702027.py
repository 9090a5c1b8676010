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
        self.items = [n, n + 1]

    def __getitem__(self, i):
        return self.items[i]


class MyError(ValueError):
    pass


def gen(n):
    try:
        for i in range(n):
            got = yield (i * 2)
    finally:
        LOG.append(f"gen {n} closed")


def fails(v):
    raise MyError(f"too large: {v}")


def outer():

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        try:
            for i4 in gen(obj[-1] % 4):
                x -= fails(i4)
        except MyError as e30:
            LOG.append(str(e30))
        else:
            pass
        finally:
            pass

    def set_cell(v):
        pass

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
X = fill(5, (2, 3), torch.float32, "integers")
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Meta(2)
N = 2
S = "ab"


def make(number):
    return [number]


def drive(f, number):
    if number == 0:
        return f(X, N, S, LST, D, OBJ, 5)


if __name__ == "__main__":
    show(__file__)
