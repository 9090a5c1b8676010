import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x2 = fill(
        10,
        (
            13,
            17,
        ),
        torch.bfloat16,
    )
    return [x2]


def f(x2):
    v3 = torch.cat([x2, x2], out=torch.empty(0, dtype=x2.dtype))
    v5 = v3[0:1, :]
    return (v3,)


if __name__ == "__main__":
    show(__file__)
