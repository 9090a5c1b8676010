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
            8,
            0,
            13,
            1,
        ),
        torch.float16,
    )
    return [x0]


def f(x0):
    v2 = torch.norm(x0, p=3, dim=-3, keepdim=True)
    v8 = F.interpolate(v2, size=(3, 4), mode="bilinear", antialias=True)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
