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
            17,
        ),
        torch.float32,
    )
    x0 = b0.permute([1, 0])
    b2 = fill(12, (17 * 17 + 3,), torch.float32, "special")
    x2 = b2[3:].view(
        (
            17,
            17,
        )
    )
    return [x0, x2]


def f(x0, x2):
    v1 = torch.rsub(x2, x0)
    return (v1,)


if __name__ == "__main__":
    show(__file__)
