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
            64,
            5,
        ),
        torch.bool,
    )
    return [x0]


def f(x0):
    v6 = x0.new_tensor([1, 2, 3])
    v7 = x0.sum()
    v12 = torch.eq(v7, v6)
    v14 = torch.outer(v6, v6)
    return (
        v14,
        v12,
    )


if __name__ == "__main__":
    show(__file__)
