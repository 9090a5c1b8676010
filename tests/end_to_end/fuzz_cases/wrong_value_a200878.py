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
            2,
            17,
        ),
        torch.bfloat16,
        "special",
    )
    x1 = x0
    return [x1]


def f(x1):
    v2 = F.layer_norm(x1, (x1.shape[-1],), eps=1e-2)
    v5 = F.batch_norm(
        v2,
        torch.zeros(v2.shape[1], dtype=v2.dtype),
        torch.ones(v2.shape[1], dtype=v2.dtype),
        training=True,
    )
    return (v5,)


if __name__ == "__main__":
    show(__file__)
