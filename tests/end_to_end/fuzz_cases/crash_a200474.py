import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=3)]


def make(N):
    b0 = fill(10, (7 * 7 * 13 * N + 3,), torch.float32)
    x0 = b0[3:].view(
        (
            7,
            7,
            13,
            N,
        )
    )
    return [x0]


def f(x0):
    x0.index_fill_(0, torch.tensor([0]), 2)
    v15 = torch.nan_to_num(x0, 0.0).clamp(0, 90).to(torch.uint8)
    return (v15,)


if __name__ == "__main__":
    show(__file__)
