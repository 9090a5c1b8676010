# wrong_value: call 2, result[0]: torch.float16 1 of 4 values, at [0, 1, 0]: eager inf, compiled nan, in double inf
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0), dict(N=0, M=2)]


def make(N, M):
    x0 = fill(0, (M, 2, M), torch.float16, "special")
    return [x0]


def f(x0):
    v0 = F.interpolate(x0, size=1, mode="linear")
    return (v0,)


if __name__ == "__main__":
    show(__file__)
