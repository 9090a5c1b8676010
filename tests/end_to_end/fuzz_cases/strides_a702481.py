import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=5)]


def make(N):
    b0 = fill(
        10,
        (
            13,
            5,
            N,
        ),
        torch.float32,
    )
    x0 = b0.permute([2, 1, 0])
    return [x0]


def f(x0):
    v2 = F.interpolate(x0, size=5, mode="nearest")
    return (v2,)


if __name__ == "__main__":
    show(__file__)
