import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=8)]


def make(N):
    b0 = fill(10, (N * 4 + 3,), torch.float32)
    x0 = b0[3:].view(
        (
            N,
            4,
        )
    )
    return [x0]


def f(x0):
    v0 = torch.empty_like(x0).copy_(x0)
    v2 = v0.expand(
        (
            2,
            v0.shape[0],
            v0.shape[1],
        )
    )
    return (v2,)


if __name__ == "__main__":
    show(__file__)
