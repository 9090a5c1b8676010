# strides: call 1, result[0]: eager (2, 1, 1), compiled (1, 2, 1), shape (2, 2, 1)
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "inference"
DYNAMIC = None
CALLS = [dict(N=2, M=0)]


def make(N, M):
    x0 = fill(0, (2, N), torch.float32, "normal", "reversed")
    return [x0]


def f(x0):
    v0 = x0.unsqueeze(-1)
    v2 = F.interpolate(v0, scale_factor=1)
    return (v2,)


if __name__ == "__main__":
    show(__file__)
