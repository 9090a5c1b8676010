import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=16)]


def make(N):
    b0 = fill(10, (N + 2,), torch.float32, "integers")
    x0 = b0[1:-1]
    return [x0]


def f(x0):
    v1 = torch.outer(x0, x0)
    v2 = torch.div(x0, 7, rounding_mode="trunc")
    v14 = v1.nanmean()
    return (
        v14,
        v2,
    )


if __name__ == "__main__":
    show(__file__)
