import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=7)]


def make(N):
    b0 = fill(
        10,
        (
            N,
            1,
        ),
        torch.float32,
        "special",
    )
    x0 = b0.expand(
        (
            N,
            16,
        )
    )
    b1 = fill(
        11,
        (
            16,
            N,
        ),
        torch.float64,
    )
    x1 = b1.permute([1, 0])
    return [x0, x1]


def f(x0, x1):
    v3 = torch.copysign(x0, x1)
    return (v3,)


if __name__ == "__main__":
    show(__file__)
