# extra_exception: call 1, exception: backward interpret.py:run: ZeroDivisionError: division by zero
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (1,), grad=True)
    return [x0]


def f(x0):
    v0 = x0[x0 > x0]
    v2 = F.layer_norm(v0, v0.shape)
    return (v2,)


if __name__ == "__main__":
    show(__file__)
