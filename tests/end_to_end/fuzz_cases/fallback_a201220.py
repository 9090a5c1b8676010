import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x2 = fill(
        12,
        (
            1,
            13,
        ),
        torch.bfloat16,
        "special",
    )
    return [x2]


def f(x2):
    x2.transpose_(0, -1)
    return (x2,)


if __name__ == "__main__":
    show(__file__)
