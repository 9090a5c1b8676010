# wrong_side_effect: call 1, argument 0: torch.int8 2 of 2 values, at [0]: eager 0, compiled 4, in double 0
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x1 = fill(0, (2,), torch.int8, "normal", "expanded")
    x2 = 0
    return [x1, x2]


def f(x1, x2):
    x1[[0]] = -0
    return (x2,)


if __name__ == "__main__":
    show(__file__)
