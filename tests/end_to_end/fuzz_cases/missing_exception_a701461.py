import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b2 = fill(
        12,
        (
            5 + 2,
            2 * 2,
        ),
        torch.bfloat16,
        "special",
    )
    x2 = b2[1:-1, ..., ::2]
    b3 = fill(13, (1 * 2 + 3,), torch.bfloat16)
    x3 = b3[3:].view(
        (
            1,
            2,
        )
    )
    return [x2, x3]


def f(x2, x3):
    v15 = torch.cdist(x2, x2 + 1)
    return (x3,)


if __name__ == "__main__":
    show(__file__)
