# wrong_value: call 1, result[0]: torch.int64 8 of 16 values, at [0, 0, 1]: eager 0, compiled 1, in double 0
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=2, M=0)]


def make(N, M):
    x1 = fill(0, (N, N))
    return [x1]


def f(x1):
    v0 = torch.nonzero(x1)
    v0.cumsum_(0)
    v2 = v0.broadcast_to((2, -1, -1))
    return (v2,)


if __name__ == "__main__":
    show(__file__)
