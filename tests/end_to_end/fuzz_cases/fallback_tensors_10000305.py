# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_10000305.py:14  v6 = torch.dstack([v3, v3])
#   stage aot.trace failed: Unsupported: whether ((True) and ((u0 == 1) or (False))) or (u0 == 0) depends on the values of a tensor
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (), grad=True)
    return [x0]


def f(x0):
    v3 = torch.masked_select(x0, x0 > 0)
    v6 = torch.dstack([v3, v3])
    return (v6,)


if __name__ == "__main__":
    show(__file__)
