import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=1)]


def make(N):
    b0 = fill(
        30,
        (
            N,
            1,
        ),
        torch.int32,
    )
    x0 = b0.expand(
        (
            N,
            13,
        )
    )
    return [x0]


def f(x0):
    v1 = torch.count_nonzero(x0, dim=-2)
    v5 = torch.eye(x0.shape[-1])
    v17 = torch.fmax(v1, v5)
    v19 = F.huber_loss(v5, v17, delta=0.5)
    v21 = torch.where(x0 > 0.3, x0, v1)
    return (
        v19,
        v21,
    )


if __name__ == "__main__":
    show(__file__)
