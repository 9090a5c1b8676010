# strides: call 1, result[0]: eager (4, 1, 2), compiled (4, 2, 1), shape (1, 2, 2)
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=1, M=0)]


def make(N, M):
    x0 = fill(0, (1, 2, N, 2))
    return [x0]


def f(x0):
    v0 = F.mse_loss(x0, x0, reduction="none")
    v2 = v0.diagonal(0, 2)
    v4 = torch.masked_select(v2, v2 > 0)
    v7 = F.adaptive_avg_pool1d(v2, 2)
    return (v7,)


if __name__ == "__main__":
    show(__file__)
