import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            17,
            3,
            3,
        ),
        torch.float32,
        "special",
    )
    x0 = b0.permute([2, 1, 0])
    return [x0]


def f(x0):
    v0 = torch.cat([x0, x0], out=torch.empty(0, dtype=x0.dtype))
    v1 = torch.add(v0, 2.5)
    v8 = torch.tril(v1, 5)
    return (v1,)


if __name__ == "__main__":
    show(__file__)
