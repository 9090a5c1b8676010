# strides: call 1, result[0]: eager (1, 2), compiled (2, 1), shape (2, 2)
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x0 = fill(0, (M, M), torch.float64, "normal", "transposed")
    return [x0]


def f(x0):
    v5 = F.batch_norm(x0, None, None, training=True)
    return (v5,)


if __name__ == "__main__":
    show(__file__)
