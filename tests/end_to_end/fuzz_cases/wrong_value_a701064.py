import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            2,
            1,
        ),
        torch.float32,
    )
    x0 = b0.permute([1, 0])
    x1 = fill(
        11,
        (
            1,
            2,
        ),
        torch.uint8,
        "special",
    )
    return [x0, x1]


def f(x0, x1):
    v1 = x0.reshape((1, 2, -1))
    v5 = torch.amin(v1, dim=(-2, -1), keepdim=True)
    v8 = torch.fmod(x1, (x1 | 1))
    v23 = torch.mul(v1, x1)
    return (
        v23,
        v8,
        v5,
    )


if __name__ == "__main__":
    show(__file__)
