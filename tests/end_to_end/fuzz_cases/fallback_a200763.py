import torch

from fusewright.fuzz import fill, show

MODE = "inference"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(10, (), torch.bool)
    return [x0]


def f(x0):
    v1 = x0.new_tensor([1, 2, 3])
    v1.fill_(1)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
