import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, leaf, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict()]


def make():
    x2 = fill(
        12,
        (
            1,
            1,
        ),
        torch.float16,
        "integers",
    )
    x2 = leaf(x2)
    return [x2]


def f(x2):
    v2 = F.logsigmoid(x2)
    return (v2,)


if __name__ == "__main__":
    show(__file__)
