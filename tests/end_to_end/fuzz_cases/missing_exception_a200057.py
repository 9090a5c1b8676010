import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(
        10,
        (
            17,
            17,
        ),
        torch.float32,
    )
    x1 = x0
    return [x0, x1]


def f(x0, x1):
    v2 = torch.ne(x0, x1)
    v2 *= torch.tensor(3)
    return (v2,)


if __name__ == "__main__":
    show(__file__)
