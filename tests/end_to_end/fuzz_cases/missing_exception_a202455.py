import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=8)]


def make(N):
    x0 = fill(
        10,
        (
            N,
            5,
        ),
        torch.bool,
    )
    return [x0]


def f(x0):
    x0.mul_(0.5)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
