import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b1 = fill(
        11,
        (
            1 + 2,
            8,
            4,
            2 * 2,
        ),
        torch.float32,
        "special",
    )
    x1 = b1[1:-1, ..., ::2]
    return [x1]


def f(x1):
    v6 = F.cosine_similarity(x1, x1, dim=0)
    return (v6,)


if __name__ == "__main__":
    show(__file__)
