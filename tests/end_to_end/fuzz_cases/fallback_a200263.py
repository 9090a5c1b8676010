import torch

from fusewright.fuzz import fill, show

MODE = "inference"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(
        10,
        (
            0,
            1,
        ),
        torch.bfloat16,
    )
    return [x0]


def f(x0):
    x0.fill_diagonal_(7)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
