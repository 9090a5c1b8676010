import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(10, (3 + 2,), torch.float32, "integers")
    x0 = b0[1:-1]
    b1 = fill(11, (3 + 2,), torch.float32)
    x1 = b1[1:-1]
    return [x0, x1]


def f(x0, x1):
    v2 = torch.outer(x1, x1)
    v4 = torch.masked_fill(v2, v2 > 0, 1)
    v7 = F.cosine_similarity(x0, x1, dim=0)
    return (
        v7,
        v2,
        v4,
    )


if __name__ == "__main__":
    show(__file__)
