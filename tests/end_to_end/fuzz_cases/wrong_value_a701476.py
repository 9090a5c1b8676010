import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=16)]


def make(N):
    x1 = fill(10, (N * 16 * 3 * 7 + 3,), torch.float32, "positive")
    x2 = fill(
        12,
        (
            3,
            1,
        ),
        torch.float32,
    )
    return [x1, x2]


def f(x1, x2):
    v3 = torch.div(x2, (x1.abs() + 1), rounding_mode="floor")
    v4 = torch.median(x2, dim=1).values
    v7 = torch.where(x2 > 0, x2, v4)
    v8 = F.layer_norm(v4, (v4.shape[-1],), eps=1e-2)
    return (
        v8,
        v7,
    )


if __name__ == "__main__":
    show(__file__)
