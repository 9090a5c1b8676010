import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(
        10,
        (
            0 + 2,
            0 * 2,
        ),
        torch.int64,
        "integers",
    )
    x0 = b0[1:-1, ..., ::2]
    x2 = b0[::2]
    x3 = fill(
        13,
        (
            0,
            0,
        ),
        torch.bfloat16,
        "integers",
    )
    return [x0, x2, x3]


def f(x0, x2, x3):
    x2.sub_(torch.tensor(3))
    v2 = torch.bitwise_xor(x0, x0)
    return (x3,)


if __name__ == "__main__":
    show(__file__)
