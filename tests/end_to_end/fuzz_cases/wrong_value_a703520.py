import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x1 = fill(11, (2,), torch.float32)
    b2 = fill(
        12,
        (
            2 + 2,
            1,
            2 * 2,
        ),
        torch.bfloat16,
    )
    x2 = b2[1:-1, ..., ::2]
    return [x1, x2]


def f(x1, x2):
    v0 = torch.fmax(x1, x2)
    v1 = F.interpolate(v0, scale_factor=1.7, mode="linear", align_corners=False)
    v7 = x1.all()
    return (
        v1,
        v7,
    )


if __name__ == "__main__":
    show(__file__)
