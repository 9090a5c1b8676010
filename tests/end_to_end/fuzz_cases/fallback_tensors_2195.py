# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_2195.py:13  v4 = torch.sum(x0, -0, out=torch.empty(0))
#   stage aot.trace failed: Unsupported: writing to an empty `out` tensor that would be resized
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (M, 0, N))
    return [x0]


def f(x0):
    v4 = torch.sum(x0, -0, out=torch.empty(0))
    return (v4,)


if __name__ == "__main__":
    show(__file__)
