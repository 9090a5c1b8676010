import torch

from fusewright.fuzz import fill, leaf, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(M=6)]


def make(M):
    x0 = fill(
        10,
        (
            M,
            5,
            8,
        ),
        torch.float32,
        "integers",
    )
    x0 = leaf(x0) * 1
    return [x0]


def f(x0):
    v5 = torch.logaddexp2(x0, torch.tensor(True))
    return (v5,)


if __name__ == "__main__":
    show(__file__)
