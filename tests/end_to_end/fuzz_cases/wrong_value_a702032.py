import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "inference"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            65,
            1,
            1,
        ),
        torch.float16,
        "special",
    )
    x0 = b0.expand(
        (
            65,
            4,
            1,
        )
    )
    return [x0]


def f(x0):
    v0 = x0.masked_fill(x0 > 0.3, -1)
    v8 = F.dropout(v0, 0.3, training=False)
    v0.index_fill_(0, torch.tensor([0]), 2)
    return (v8,)


if __name__ == "__main__":
    show(__file__)
