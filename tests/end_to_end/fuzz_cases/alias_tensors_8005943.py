# alias: call 1, result[1]: (object, memory, offset): eager (3, 1, 0), compiled (3, 2, 0)
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=2, M=0)]


def make(N, M):
    x0 = fill(0, (N, 2), grad=True)
    return [x0]


def f(x0):
    v1 = torch.remainder(x0, 0)
    v1.squeeze_()
    v3 = v1.flatten()
    return (v3, v1)


if __name__ == "__main__":
    show(__file__)
