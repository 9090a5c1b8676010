# wrong_value: call 1, result[0]: torch.float32 4 of 14 values, at [0, 5]: eager 0.0, compiled -0.0, in double 0.0
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x0 = fill(0, (M, 7), torch.float32, "special")
    x2 = 0
    return [x0, x2]


def f(x0, x2):
    v4 = torch.sub(x0, x2, alpha=0)
    return (v4,)


if __name__ == "__main__":
    show(__file__)
