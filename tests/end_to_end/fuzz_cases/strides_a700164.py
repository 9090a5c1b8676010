import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=7, M=6)]


def make(N, M):
    b0 = fill(
        10,
        (
            N,
            M,
        ),
        torch.float64,
    )
    x0 = b0.permute([1, 0])
    return [x0]


def f(x0):
    v4 = F.logsigmoid(x0)
    return (v4,)


if __name__ == "__main__":
    show(__file__)
