# wrong_value: call 1, result[0]: torch.float32 1 of 16 values, at [1, 0]: eager 0.0, compiled -0.0, in double 0.0
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=4)]


def make(N, M):
    x0 = fill(0, (4, M), torch.float32, "special")
    return [x0]


def f(x0):
    x0.lerp_(x0, 1.0)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
