import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            3 + 2,
            2,
            13,
            5 * 2,
        ),
        torch.float32,
        "special",
    )
    x0 = b0[1:-1, ..., ::2]
    return [x0]


def f(x0):
    v2 = torch.nanmean(x0, dim=3, keepdim=True)
    v4 = v2.expand(
        (
            1,
            3,
            2,
            13,
            1,
        )
    )
    v4[1:].add_(1)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
