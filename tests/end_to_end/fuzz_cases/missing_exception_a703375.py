import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(
        10,
        (
            64,
            0,
        ),
        torch.uint8,
        "special",
    )
    return [x0]


def f(x0):
    v4 = x0.max()
    return (x0,)


if __name__ == "__main__":
    show(__file__)
