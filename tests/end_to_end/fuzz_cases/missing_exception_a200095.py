import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict()]


def make():
    x0 = fill(
        10,
        (
            64,
            3,
            2,
        ),
        torch.float32,
    )
    x1 = x0[:1]
    return [x0, x1]


def f(x0, x1):
    v0 = F.softsign(x1)
    v0.t_()
    return (x0,)


if __name__ == "__main__":
    show(__file__)
