import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=6)]


def make(N, M):
    b0 = fill(10, (M * N + 3,), torch.float32)
    x0 = b0[3:].view(
        (
            M,
            N,
        )
    )
    return [x0]


def f(x0):
    v0 = torch.full_like(x0, 3)
    v4 = v0.median()
    v8 = torch.all(v0, dim=(-2, -1))
    v10 = v4 + v0
    return (
        v8,
        v10,
    )


if __name__ == "__main__":
    show(__file__)
