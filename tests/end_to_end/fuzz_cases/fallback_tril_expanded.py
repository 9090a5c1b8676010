import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0), dict(N=2, M=0)]


def make(N, M):
    x0 = fill(0, (N, 1), torch.float32, "normal", "expanded")
    x1 = x0[0:]
    return [x0, x1]


def f(x0, x1):
    v1 = x1.narrow(-0, 0, 0)
    x0.tril_()
    return (v1,)


if __name__ == "__main__":
    show(__file__)
