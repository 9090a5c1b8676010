import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x2 = fill(
        12,
        (
            2,
            2,
        ),
        torch.float32,
        "integers",
    )
    x3 = x2.t()
    return [x2, x3]


def f(x2, x3):
    v0 = torch.argsort(x3, dim=-2, stable=True)
    v0.mul_(x2)
    return (x2,)


if __name__ == "__main__":
    show(__file__)
