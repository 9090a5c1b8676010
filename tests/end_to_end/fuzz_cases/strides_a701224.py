import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    x3 = fill(
        13,
        (
            64,
            1,
            1,
        ),
        torch.float32,
        "positive",
    )
    return [x3]


def f(x3):
    v9 = x3.permute([1, 2, 0])
    v12 = v9[None, (torch.tensor([0, 0, 5, 0, 2]) % v9.shape[0])]
    return (v12,)


if __name__ == "__main__":
    show(__file__)
