import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b1 = fill(11, (2 + 3,), torch.float32)
    x1 = b1[3:].view((2,))
    return [x1]


def f(x1):
    v2 = torch.outer(x1, x1)
    v4 = torch.where(x1 > 0, x1, v2)
    v5 = torch.argmax(x1, dim=0)
    return (
        v4,
        v5,
        v2,
    )


if __name__ == "__main__":
    show(__file__)
