# wrong_value: call 1, result[0]: torch.float32 2 of 180 values, at [3, 3, 0]: eager 0.0, compiled -0.0, in double 0.0
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "no_grad"
DYNAMIC = None
CALLS = [dict(N=5, M=31)]


def make(N, M):
    x0 = fill(1048, (4, 9, 5), torch.int64)
    x1 = fill(5045, (4, 9, 5), torch.float32, "special", "transposed")
    return [x0, x1]


def f(x0, x1):
    x1.cumsum_(-1)
    return (x1, x0, x0, x1, x0)


if __name__ == "__main__":
    show(__file__)
