# missing_exception: call 1, exception: call fuzz_tensors_2283.py:f: IndexError: index 1 is out of bounds for dimension 0 with size 1
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=1)]


def make(N, M):
    x0 = fill(0, (M,))
    return [x0]


def f(x0):
    v5 = torch.maximum(x0, x0)
    v5[[1]] = 0
    return (x0,)


if __name__ == "__main__":
    show(__file__)
