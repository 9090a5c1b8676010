# wrong_value: call 1, result[0]: torch.bfloat16 1 of 1 values, at [0]: eager 2.938735877055719e-39, compiled 0.0, in double 2.938735877055719e-39
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=7, M=1)]


def make(N, M):
    x0 = 2451
    x1 = fill(4698, (M,), torch.bfloat16, "special")
    return [x1]


def f(x1):
    v0 = torch.select_scatter(x1, x1.select(0, 0), 0, -1)
    return (v0,)


if __name__ == "__main__":
    show(__file__)
