import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b1 = fill(
        11,
        (
            64 + 2,
            1 * 2,
        ),
        torch.float32,
    )
    x1 = b1[1:-1, ..., ::2]
    b2 = fill(
        12,
        (
            5 + 2,
            64,
            4 * 2,
        ),
        torch.int32,
        "integers",
    )
    x2 = b2[1:-1, ..., ::2]
    return [x1, x2]


def f(x1, x2):
    x2.squeeze_()
    return (x1,)


if __name__ == "__main__":
    show(__file__)
