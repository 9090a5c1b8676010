import torch
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = False
CALLS = [dict(N=0, M=3)]


def make(N, M):
    x0 = fill(0, (M,), grad=True)
    x0 = x0 * 0
    return [x0]


def f(x0):
    x0[0].add_(0)
    v2 = torch.angle(x0)
    return (v2,)


if __name__ == "__main__":
    show(__file__)
