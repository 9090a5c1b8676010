import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            17,
            3,
            1,
        ),
        torch.float64,
    )
    x0 = b0.expand(
        (
            17,
            3,
            13,
        )
    )
    return [x0]


def f(x0):
    v3 = torch.var(x0, dim=-1, keepdim=True, unbiased=False)
    return (v3,)


if __name__ == "__main__":
    show(__file__)
