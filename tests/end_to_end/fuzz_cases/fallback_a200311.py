import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(10, (1 * 13 + 3,), torch.float16, "integers")
    x0 = b0[3:].view(
        (
            1,
            13,
        )
    )
    return [x0]


def f(x0):
    x0.t_()
    return (x0,)


if __name__ == "__main__":
    show(__file__)
