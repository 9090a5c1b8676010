import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            5,
            1,
        ),
        torch.float32,
        "special",
    )
    x0 = b0.expand(
        (
            5,
            8,
        )
    )
    return [x0]


def f(x0):
    v2 = x0[:, 2:1]
    v2[-1], v2[0] = v2[0].clone(), v2[-1].clone()
    return (x0,)


if __name__ == "__main__":
    show(__file__)
