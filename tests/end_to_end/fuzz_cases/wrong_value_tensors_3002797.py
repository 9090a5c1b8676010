# wrong_value: call 1, gradient 0: torch.float32 1 of 1 values, at [0]: eager 0.10478027164936066, compiled 0.0, in double 0.10478027054175332
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(N=1, M=0)]


def make(N, M):
    x0 = fill(0, (N,), grad=True)
    x1 = fill(1, (N,), torch.float64)
    return [x0, x1]


def f(x0, x1):
    v0 = F.smooth_l1_loss(x1, x0)
    return (v0,)


if __name__ == "__main__":
    show(__file__)
