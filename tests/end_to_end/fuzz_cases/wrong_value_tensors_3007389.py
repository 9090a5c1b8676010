# wrong_value: call 1, result[0]: torch.float32 2 of 2 values, at [0]: eager 0.0, compiled 2.646078586578369, in double 0.0
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (2,), torch.float32, "normal", "expanded")
    return [x0]


def f(x0):
    x0.index_fill_(-0, torch.tensor([0]), 0)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
