# wrong_value: call 1, result[0]: torch.float32 1 of 2 values, at [0, 0]: eager -0.0, compiled -8.046627044677734e-07, in double -0.0
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(N=2, M=9)]


def make(N, M):
    x0 = fill(2267, (1,), torch.float32)
    x1 = fill(2052, (1,), torch.float32, "integers")
    return [x0, x1]


def f(x0, x1):
    v0 = x1**3
    v2 = torch.tensor(3)
    v7 = torch.stack([v0, x0])
    v8 = F.gelu(v7)
    return (v8,)


if __name__ == "__main__":
    show(__file__)
