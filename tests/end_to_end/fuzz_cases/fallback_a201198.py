import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            17 + 2,
            5 * 2,
        ),
        torch.int32,
    )
    x0 = b0[1:-1, ..., ::2]
    return [x0]


def f(x0):
    v7 = torch.cat([x0, x0], out=torch.empty(0, dtype=x0.dtype))
    v11 = v7.view_as(v7)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
