import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x0 = fill(0, (M,), torch.float32, "normal", "expanded")
    return [x0]


def f(x0):
    x0.copy_(x0)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
