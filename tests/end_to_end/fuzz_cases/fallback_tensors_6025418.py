# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from f  fuzz_tensors_6025418.py:13
#   the graph raised IndexError: index 2 is out of bounds for dimension 0 with size 2; the call runs as it was written
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=3, M=0), dict(N=2, M=0)]


def make(N, M):
    x0 = fill(0, (0, N))
    x2 = 0
    return [x0, x2]


def f(x0, x2):
    x0.index_fill_(1, torch.tensor([2]), -0)
    return (x2,)


if __name__ == "__main__":
    show(__file__)
