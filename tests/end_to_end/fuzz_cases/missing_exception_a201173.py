import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(
        10,
        (
            7,
            5,
            7,
        ),
        torch.float32,
        "integers",
    )
    return [x0]


def f(x0):
    v0 = torch.gt(x0, x0)
    v0.cumsum_(0)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
