import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(10, (2 * 5 + 3,), torch.int64)
    x0 = b0[3:].view(
        (
            2,
            5,
        )
    )
    b1 = fill(
        11,
        (
            2,
            1,
        ),
        torch.bool,
    )
    x1 = b1.expand(
        (
            2,
            5,
        )
    )
    return [x0, x1]


def f(x0, x1):
    v24 = x1.scatter_reduce(
        -1,
        torch.arange(x1.numel()).reshape(x1.shape) % x1.shape[-1],
        x1,
        "mean",
        include_self=False,
    )
    return (x0,)


if __name__ == "__main__":
    show(__file__)
