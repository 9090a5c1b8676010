import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x1 = fill(0, (N,), torch.float16)
    return [x1]


def f(x1):
    v3 = torch.complex(x1, x1)
    return (v3,)


if __name__ == "__main__":
    show(__file__)
