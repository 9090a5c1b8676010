import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(M=2)]


def make(M):
    x0 = fill(
        10,
        (
            1,
            M,
        ),
        torch.float32,
    )
    return [x0]


def f(x0):
    v3 = torch.empty_like(x0).copy_(x0)
    v7 = v3.flatten(-2)
    v17, v18 = torch.meshgrid(v7, v7, indexing="ij")
    return (v17,)


if __name__ == "__main__":
    show(__file__)
