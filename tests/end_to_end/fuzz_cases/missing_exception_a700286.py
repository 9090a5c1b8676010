import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict()]


def make():
    x0 = fill(
        10,
        (
            17,
            7,
            1,
        ),
        torch.float64,
    )
    return [x0]


def f(x0):
    v10 = x0.t()
    return (x0,)


if __name__ == "__main__":
    show(__file__)
