import torch

from fusewright.fuzz import fill, show

DYNAMIC = False
CALLS = [dict(number=0)]
STATE = (
    "X",
    "LST",
    "D",
    "OBJ",
    "WATCH",
)


class Meta:
    shared = 2

    def __init__(self, n=1):
        pass

    def __getitem__(self, i):
        pass


class Child(Meta):
    pass


def remember(v, seen=[]):
    pass


def outer():
    cell = 4

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        nonlocal cell
        cell = obj[-1]
        x += k

    def set_cell(v):
        pass

    return (f, set_cell, lambda: cell)


f, set_cell, get_cell = outer()
X = fill(5, (2, 3), torch.float32, "integers").requires_grad_()
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Child(3)
N = 2


class Watch:
    @property
    def __dict__(self):
        return {
            "cell": get_cell(),
            "shared": Meta.shared,
            "child": Child.shared,
            "seen": remember.__defaults__[0],
            "f": f.__dict__,
            "x": getattr(X, "__dict__", None),
        }


WATCH = Watch()


def make(number):
    return [number]


def drive(f, number):
    global S, X
    if number == 0:
        X = X[1:]
        S = "b,a"
        return f(X, N, S, LST, D, OBJ)


if __name__ == "__main__":
    show(__file__)
