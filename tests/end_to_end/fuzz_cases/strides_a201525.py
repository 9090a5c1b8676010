import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(10, (8 * 7 * 17 + 3,), torch.uint8, "special")
    x0 = b0[3:].view(
        (
            8,
            7,
            17,
        )
    )
    return [x0]


def f(x0):
    v0 = x0.new_tensor([1, 2, 3])
    v5, v6 = torch.meshgrid(v0, v0, indexing="xy")
    return (v5,)


if __name__ == "__main__":
    show(__file__)
