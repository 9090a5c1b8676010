import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(10, (3,), torch.float32, "special")
    return [x0]


def f(x0):
    v0 = F.gelu(x0)
    return (v0,)


if __name__ == "__main__":
    show(__file__)
