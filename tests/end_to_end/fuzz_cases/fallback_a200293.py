import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(10, (), torch.float32, "special")
    x1 = b0.reshape(-1)
    return [x1]


def f(x1):
    v14 = torch.cat([x1, x1], out=torch.empty(0, dtype=x1.dtype))
    return (v14,)


if __name__ == "__main__":
    show(__file__)
