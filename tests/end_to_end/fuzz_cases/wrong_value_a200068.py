import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=16)]


def make(N):
    x0 = fill(
        10,
        (
            64,
            N,
        ),
        torch.float32,
        "integers",
    )
    return [x0]


def f(x0):
    v2 = torch.cat([x0, x0], out=torch.empty(0, dtype=x0.dtype))
    v3 = v2.scatter_add(0, torch.arange(v2.numel()).reshape(v2.shape) % v2.shape[0], v2)
    return (v3,)


if __name__ == "__main__":
    show(__file__)
