import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (1,))
    return [x0]


def f(x0):
    v0 = torch.masked_select(x0, x0 > 0)
    v0[::2] = 0.001
    return (v0,)


if __name__ == "__main__":
    show(__file__)
