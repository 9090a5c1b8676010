import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(10, (), torch.bfloat16)
    return [x0]


def f(x0):
    v5 = torch.special.log_ndtr(x0)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
