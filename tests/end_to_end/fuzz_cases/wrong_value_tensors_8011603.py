# wrong_value: call 1, result[0][1]: torch.float32 1 of 1 values, at []: eager -inf, compiled nan, in double -inf
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x1 = fill(1301, (), torch.float32, "integers")
    return [x1]


def f(x1):
    v1 = torch.log10(x1)
    v4 = torch.std_mean(v1)
    return (v4,)


if __name__ == "__main__":
    show(__file__)
