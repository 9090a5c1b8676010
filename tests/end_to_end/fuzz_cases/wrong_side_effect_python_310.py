# wrong_side_effect: call 1, G_INT: eager 0 (int), compiled 0.0 (float)
import torch
from fusewright.fuzz import fill, show


class Meta:
    def make(cls, n):
        return cls()


LST = []
D = {"a": 0, "b": 0}
OBJ = Meta()
MODE = "plain"
DYNAMIC = None
CALLS = [dict(seed=0)]
STATE = ("G_INT",)


def outer():

    def f(x, n, s, lst, d, obj, *rest, k=0, flag=False, fl=1.5, **kw):
        global G_INT, G_TEXT
        x = torch.zeros(x.shape)
        G_INT = int(getattr(x, "abs")().sum())
        return (obj,)

    def peek():
        return cell

    return (f, peek)


f, peek = outer()


def make(seed, n=0, s="ab", rest=(), **keywords):
    return [fill(seed, (0,)), n, s, rest, keywords]


def drive(f, x, n, s, rest, keywords):
    return f(x, n, s, LST, D, OBJ)


if __name__ == "__main__":
    show(__file__)
