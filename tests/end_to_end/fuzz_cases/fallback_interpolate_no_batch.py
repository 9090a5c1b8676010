import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x1 = fill(0, (M, 1, 1), torch.bfloat16)
    x2 = 0
    return [x1, x2]


def f(x1, x2):
    v0 = F.interpolate(x1, size=1)
    return (x2,)


if __name__ == "__main__":
    show(__file__)
