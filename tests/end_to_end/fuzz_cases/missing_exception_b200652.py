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
    "LOG",
    "mod",
)


G_INT = 3
LOG = []


class Meta:
    shared = 2

    def __init__(self, n=1):
        self.n = n

    def apply(self, t, k=1):
        pass

    def __call__(self, v):
        pass


class Child(Meta):
    shared = 5


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2

    def norm(self):
        return self.x * self.x + self.y * self.y


Pair = collections.namedtuple("Pair", ["left", "right"])


class Mod(nn.Module):
    pass


def outer():
    cell = 4

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        nonlocal cell
        i51 = 1
        i51 += 1
        if callable(obj):
            return (obj.apply(n - x, k=Point(n, y=0 % 9).norm()), s * 2)
        l58 = lst

    def set_cell(v):
        nonlocal cell
        cell = v

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
mod = Mod()
X = fill(5, (2, 3), torch.float32, "integers").requires_grad_() * 1
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Child(3)
OBJ0 = OBJ
N = 2
S = "ab"


def make(number):
    return [number]


def drive(f, number):
    global N
    if number == 0:
        N = True
        return f(X, N, S, LST, D, OBJ, *LST)


if __name__ == "__main__":
    show(__file__)
