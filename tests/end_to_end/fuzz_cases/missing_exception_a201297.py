import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x0 = fill(
        10,
        (
            3,
            4,
        ),
        torch.float32,
    )
    x3 = x0.t()
    return [x0, x3]


def f(x0, x3):
    v5 = torch.ldexp(x3, torch.tensor(True))
    return (x0,)


if __name__ == "__main__":
    show(__file__)
