import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=3)]


def make(N):
    b0 = fill(
        10,
        (
            N,
            0,
        ),
        torch.float64,
        "special",
    )
    x0 = b0.permute([1, 0])
    return [x0]


def f(x0):
    v5 = x0.min()
    return (x0,)


if __name__ == "__main__":
    show(__file__)
