# wrong_value: call 1, result[0][1]: torch.float32 1 of 1 values, at []: eager nan, compiled inf, in double nan
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x0 = fill(0, (M, M, M), torch.float32, "special")
    return [x0]


def f(x0):
    v0 = torch.std_mean(x0)
    return (v0,)


if __name__ == "__main__":
    show(__file__)
