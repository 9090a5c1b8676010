import collections

import torch
from torch import nn

from fusewright.fuzz import fill, show

DYNAMIC = True
CALLS = [dict(number=0), dict(number=1)]
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

    @staticmethod
    def twice(v):
        return v * 2

    def __len__(self):
        return len(self.items)

    def __call__(self, v):
        return v + self.n

    def __hash__(self):
        return hash(self.n)

    def __bool__(self):
        return self.n != 0


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
            i2 = Pair(obj(n), 2).left

            def f1(a, b=int.from_bytes(bytes([-3 % 200]), "big"), *more, c=n, **opts):
                nonlocal i2
                i2 += a + len(more)
                return a * b + c + i2 + len(opts)

            i6 = f1(len([*zip(lst, s)]), **{chr(99): 3, chr(122): 1})
            for i8t in x:
                obj.table = {"a": n, s: k}.copy()
                if flag:
                    continue
        except KeyError as e21:
            pass
        else:
            *l23, i22 = lst
            x[0] = int(fl * 2) ^ 3 + -1
            if obj.flag:
                s34 = s
                b36 = isinstance(n, (int, float)) and n > 1
                T37 = x
            elif 1 < repr(obj).count("a") <= 5:
                l41 = l23
        finally:
            pass
        T54 = int(x.max().item()) - torch.ones_like(x) * min(lst, default=0)
        s56 = set(lst)
        k -= max(k, k)
        T54 -= 0 ^ n
        return [d]

    def set_cell(v):
        nonlocal cell
        cell = v

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
mod = Mod()
X = fill(5, (3,), torch.float32, "integers").requires_grad_()
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
    global LST, S, X
    if number == 0:
        X = X[1:]
        mod.scale = 5
        return f(X, N, S, LST, D, OBJ)
    if number == 1:
        LST = list(LST)
        S = "12"
        return f(X, N, S, LST, D, OBJ, k=3)


if __name__ == "__main__":
    show(__file__)
