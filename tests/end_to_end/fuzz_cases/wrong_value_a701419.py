import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(
        10,
        (
            3,
            16,
        ),
        torch.float32,
    )
    return [x0]


def f(x0):
    v0 = x0.unfold(-1, 3, 1)
    v2 = torch.trunc(v0)
    v7 = torch.bmm(v2, v2.transpose(1, 2))
    v9 = F.gelu(v7)
    return (v9,)


if __name__ == "__main__":
    show(__file__)
