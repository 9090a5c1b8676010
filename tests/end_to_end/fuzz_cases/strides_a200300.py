import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            2,
            17,
        ),
        torch.int64,
        "integers",
    )
    x0 = b0.permute([1, 0])
    return [x0]


def f(x0):
    v2 = x0[None, torch.arange(x0.shape[0])]
    return (v2,)


if __name__ == "__main__":
    show(__file__)
