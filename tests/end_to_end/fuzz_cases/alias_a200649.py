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
            64 + 2,
            2,
            7 * 2,
        ),
        torch.float32,
        "integers",
    )
    x0 = b0[1:-1, ..., ::2]
    return [x0]


def f(x0):
    v21 = F.dropout(x0, 0.0)
    return (v21,)


if __name__ == "__main__":
    show(__file__)
