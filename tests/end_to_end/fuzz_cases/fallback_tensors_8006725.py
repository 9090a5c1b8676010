# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_8006725.py:15  torch.sin(x1, out=x0)
#   stage aot.trace failed: Unsupported: an `out=` argument that would be resized
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (N,))
    x1 = fill(0, (1,))
    x3 = 0
    return [x0, x1, x0, x3]


def f(x0, x1, x2, x3):
    torch.sin(x1, out=x0)
    return (x3,)


if __name__ == "__main__":
    show(__file__)
