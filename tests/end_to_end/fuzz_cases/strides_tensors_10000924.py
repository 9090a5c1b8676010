# strides: call 1, result[0]: eager (4, 1, 2), compiled (4, 2, 1), shape (2, 2, 2)
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=2, M=0)]


def make(N, M):
    x0 = fill(0, (N, 2, N), torch.float32, "normal", "transposed")
    return [x0]


def f(x0):
    v2 = F.interpolate(x0, size=2, mode="area")
    return (v2,)


if __name__ == "__main__":
    show(__file__)
