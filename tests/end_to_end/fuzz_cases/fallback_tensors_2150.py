import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=3, M=4)]


def make(N, M):
    x0 = fill(0, (N, 0), torch.complex64)
    x1 = x0[1:]  # begins beyond the end of its storage, of which it needs nothing
    return [x0, x1]


def f(x0, x1):
    v0 = x0 == x0
    x1[0] = x1[-1]
    return (v0,)


if __name__ == "__main__":
    show(__file__)
