import torch

from fusewright.fuzz import fill, leaf, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            65,
            1,
        ),
        torch.float32,
    )
    x0 = b0.expand(
        (
            65,
            16,
        )
    )
    x0 = leaf(x0)
    return [x0]


def f(x0):
    v6 = x0.expand(
        (
            x0.shape[0],
            16,
        )
    )
    return (v6,)


if __name__ == "__main__":
    show(__file__)
