import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x1 = fill(0, (1,), grad=True)
    return [x1]


def f(x1):
    v6 = torch.argwhere(x1)
    v6.transpose(0, 1).copy_(0)
    return (x1,)


if __name__ == "__main__":
    show(__file__)
