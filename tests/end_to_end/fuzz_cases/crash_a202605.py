import torch

from fusewright.fuzz import fill, leaf, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict()]


def make():
    b2 = fill(12, (4 * 1 * 5 * 17 + 3,), torch.bfloat16, "integers")
    x2 = b2[3:].view(
        (
            4,
            1,
            5,
            17,
        )
    )
    x2 = leaf(x2)
    return [x2]


def f(x2):
    v5 = torch.einsum("...ij,...kj->...ik", x2, x2)
    return (v5,)


if __name__ == "__main__":
    show(__file__)
