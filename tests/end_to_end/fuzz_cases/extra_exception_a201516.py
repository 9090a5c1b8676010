import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, leaf, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(10, (3,), torch.bfloat16, "special")
    x0 = leaf(x0) * 1
    return [x0]


def f(x0):
    v7 = F.logsigmoid(x0)
    return (v7,)


if __name__ == "__main__":
    show(__file__)
