# missing_exception: call 1, exception: call repeated_writes.py:__torch_function__: RuntimeError: min(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x1 = 0
    x2 = fill(0, (N,))
    return [x1, x2]


def f(x1, x2):
    v2 = x2.min()
    return (x1,)


if __name__ == "__main__":
    show(__file__)
