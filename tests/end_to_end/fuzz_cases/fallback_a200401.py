import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=16)]


def make(N):
    b0 = fill(10, (N * 13 * 7 * 1 + 3,), torch.float16)
    x0 = b0[3:].view(
        (
            N,
            13,
            7,
            1,
        )
    )
    return [x0]


def f(x0):
    x0.unsqueeze_(0)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
