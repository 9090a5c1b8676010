import torch

from fusewright.fuzz import fill, leaf, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(
        10,
        (
            13,
            65,
            3,
        ),
        torch.float32,
    )
    x0 = leaf(x0) * 1
    return [x0]


def f(x0):
    v6 = x0.unfold(1, 1, 2)
    v6[..., 0] = 2
    return (x0,)


if __name__ == "__main__":
    show(__file__)
