# wrong_side_effect: call 1, argument 0: torch.float32 3 of 648 values, at [0, 0, 3]: eager -inf, compiled nan, in double -inf
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=9, M=0)]


def make(N, M):
    x0 = fill(0, (8, N, N), torch.float32, "special")
    x1 = fill(0, (N,), torch.float32, "special")
    return [x0, x1]


def f(x0, x1):
    x0.addcmul_(x1, x1)
    return (x1,)


if __name__ == "__main__":
    show(__file__)
