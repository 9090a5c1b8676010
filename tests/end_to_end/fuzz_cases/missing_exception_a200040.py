import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=3)]


def make(N):
    x0 = fill(
        10,
        (
            N,
            16,
        ),
        torch.float64,
    )
    return [x0]


def f(x0):
    v2 = torch.ne(x0, torch.tensor(3))
    v9 = torch.bucketize(v2, torch.tensor([-1.0, 0.0, 0.5], dtype=v2.dtype))
    return (x0,)


if __name__ == "__main__":
    show(__file__)
