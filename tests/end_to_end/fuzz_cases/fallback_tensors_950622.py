# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from f  fuzz_tensors_950622.py:12
#   the program raises RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead."), from its own lines
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x0 = fill(0, (M, M), torch.bool, "normal", "expanded")
    return [x0]


def f(x0):
    v1 = torch.view_copy(x0, (-1,))
    return (v1,)


if __name__ == "__main__":
    show(__file__)
