import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict()]


def make():
    b0 = fill(10, (1 * 3 + 3,), torch.float32)
    x0 = b0[3:].view(
        (
            1,
            3,
        )
    )
    return [x0]


def f(x0):
    v1 = x0[None, (torch.tensor([6, 5, 0]) % x0.shape[0])]
    v2, v3 = torch.aminmax(x0, dim=-1)
    v9 = torch.linalg.cross(v1, v1.flip(-1))
    return (
        v3,
        v9,
    )


if __name__ == "__main__":
    show(__file__)
