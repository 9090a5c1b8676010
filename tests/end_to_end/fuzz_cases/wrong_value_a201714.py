import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, leaf, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(N=33)]


def make(N):
    x0 = fill(20, (N,), torch.float16)
    x0 = leaf(x0) * 1
    return [x0]


def f(x0):
    v0 = torch.log10(x0)
    v7 = F.relu6(v0)
    return (v7,)


if __name__ == "__main__":
    show(__file__)
