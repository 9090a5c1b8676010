import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, leaf, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            17,
            0,
            7,
        ),
        torch.float32,
    )
    x0 = b0.permute([2, 1, 0])
    x0 = leaf(x0)
    return [x0]


def f(x0):
    v2 = F.huber_loss(x0, x0, delta=0.5)
    return (v2,)


if __name__ == "__main__":
    show(__file__)
