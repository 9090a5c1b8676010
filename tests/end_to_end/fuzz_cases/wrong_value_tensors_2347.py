# wrong_value: call 1, result[0]: torch.float32 1 of 1 values, at []: eager 0.0, compiled 2.7755575615628914e-16, in double 0.0
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=5, M=0)]


def make(N, M):
    x1 = fill(0, (N,), torch.float32, "integers", "expanded")
    return [x1]


def f(x1):
    v0 = x1.var()
    return (v0,)


if __name__ == "__main__":
    show(__file__)
