# wrong_value: call 1, gradient 0: torch.float32 1 of 6 values, at [1, 2]: eager 2.7272727489471436, compiled nan, in double 2.7272727272727275
import torch
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(N=2, M=0)]


def make(N, M):
    x0 = fill(0, (N, 3), grad=True)
    return [x0]


def f(x0):
    v0 = torch.hstack([x0, x0])
    v2 = torch.rsqrt(x0)
    v3 = torch.argwhere(v0)
    v2
    return (v0,)


if __name__ == "__main__":
    show(__file__)
