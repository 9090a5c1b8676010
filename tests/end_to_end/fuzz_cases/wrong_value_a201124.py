import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b1 = fill(
        11,
        (
            4,
            13,
            1,
            1,
        ),
        torch.float32,
    )
    x1 = b1.expand(
        (
            4,
            13,
            1,
            17,
        )
    )
    return [x1]


def f(x1):
    v14 = torch.std(x1, dim=(-2, -1), keepdim=True, correction=0)
    return (v14,)


if __name__ == "__main__":
    show(__file__)
