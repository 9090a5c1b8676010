import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(20, (17 * 4 + 3,), torch.bool)
    x0 = b0[3:].view(
        (
            17,
            4,
        )
    )
    return [x0]


def f(x0):
    v0 = x0.reshape((4, 17))
    v0[-1], v0[0] = v0[0].clone(), v0[-1].clone()
    v1 = x0.to(torch.bfloat16)
    return (v1,)


if __name__ == "__main__":
    show(__file__)
