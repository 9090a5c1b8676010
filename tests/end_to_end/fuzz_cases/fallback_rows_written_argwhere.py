import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x1 = fill(0, (M,))
    return [x1]


def f(x1):
    v0 = torch.argwhere(x1)
    v0[:-1,] = 0
    return (x1,)


if __name__ == "__main__":
    show(__file__)
