import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(M=4)]


def make(M):
    x0 = fill(
        10,
        (
            M,
            5,
            5,
        ),
        torch.float32,
    )
    return [x0]


def f(x0):
    v0 = torch.cummax(x0, 2).values
    v0.unsqueeze_(0)
    return (v0,)


if __name__ == "__main__":
    show(__file__)
