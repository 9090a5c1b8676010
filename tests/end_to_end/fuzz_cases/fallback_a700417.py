import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(10, (), torch.float32, "integers")
    return [x0]


def f(x0):
    v10 = x0.unfold(0, 1, 3)
    v10.neg_()
    return (x0,)


if __name__ == "__main__":
    show(__file__)
