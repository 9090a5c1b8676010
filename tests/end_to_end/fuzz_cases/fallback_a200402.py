import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x1 = fill(
        11,
        (
            1,
            1,
        ),
        torch.float32,
    )
    return [x1]


def f(x1):
    v1 = torch.cat([x1, x1], out=torch.empty(0, dtype=x1.dtype))
    v4 = v1[1:, torch.arange(v1.shape[1])]
    return (v1,)


if __name__ == "__main__":
    show(__file__)
