import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            2 + 2,
            5 * 2,
        ),
        torch.float32,
        "special",
    )
    x0 = b0[1:-1, ..., ::2]
    return [x0]


def f(x0):
    v3 = x0.select(0, 1)
    v6 = torch.kron(v3, v3)
    v7 = torch.floor(x0)
    v8 = torch.xlogy(v7, v3)
    v12 = torch.amax(v3, dim=0)
    return (
        v7,
        v12,
        v6,
        v8,
    )


if __name__ == "__main__":
    show(__file__)
