# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from f  fuzz_tensors_6025456.py:12
#   the graph raised IndexError: index out of range in compiled kernel cpu_rad2deg_hardshrink_gather_f129995f; the call runs as it was written
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (4, 2))
    return [x0]


def f(x0):
    v2 = torch.rad2deg(x0)
    v4 = F.hardshrink(v2)
    v6 = torch.take_along_dim(v4, torch.arange(v4.numel()).view(v4.shape) * 3 % v4.shape[0], -1)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
