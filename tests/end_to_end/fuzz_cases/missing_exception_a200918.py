import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=16)]


def make(N):
    x1 = fill(
        11,
        (
            3,
            N,
        ),
        torch.int32,
    )
    return [x1]


def f(x1):
    v18 = torch.remainder(x1, x1)
    return (x1,)


if __name__ == "__main__":
    show(__file__)
