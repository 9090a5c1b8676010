import collections

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


Pair = collections.namedtuple("Pair", ["left", "right"])


class Mod(nn.Module):
    pass


def outer():
    cell = 4

    def tmap(t, a):
        return t + a * cell

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        global G_INT, G_FLAG, G_STR
        nonlocal cell
        try:
            i15 = 1
        except Exception as e21:
            LOG.append(type(e21).__name__)
        finally:
            G_INT = k
            lst += [obj.double]
            if G_FLAG:
                t37 = tuple(x.shape)
                T38 = x
            else:
                i44 = len(obj)
        T45 = x
        T46 = T45
        T47 = x
        T48 = T45
        T54 = x
        f55 = fl
        T54 *= lst[-1]
        T61 = torch.relu(T48)
        return (k, x)

    def set_cell(v):
        nonlocal cell
        cell = v

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
mod = Mod()
X = fill(5, (2, 3), torch.float32, "integers").requires_grad_()
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
        return f(X, N, S, LST, D, OBJ, *LST)


if __name__ == "__main__":
    show(__file__)
