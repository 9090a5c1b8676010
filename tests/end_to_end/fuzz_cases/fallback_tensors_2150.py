# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from f  fuzz_tensors_2150.py:13
#   the graph raised RuntimeError: Trying to resize storage that is not resizable; the call runs as it was written
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=2, M=0)]


def make(N, M):
    x1 = fill(0, (N, 0))
    x2 = x1[1:]
    return [x1, x2]


def f(x1, x2):
    v0 = x1 == x1
    x2[0] = x2
    return (v0,)


if __name__ == "__main__":
    show(__file__)
