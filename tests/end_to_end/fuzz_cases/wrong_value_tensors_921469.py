# wrong_value: call 1, result[0]: torch.bfloat16 1 of 70 values, at [3, 6]: eager -inf, compiled nan, in double -inf
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=14, M=0)]


def make(N, M):
    x0 = fill(144, (5, N), torch.bfloat16, "special")
    return [x0]


def f(x0):
    v0 = torch.cumprod(x0, 1)
    return (v0,)


if __name__ == "__main__":
    show(__file__)
