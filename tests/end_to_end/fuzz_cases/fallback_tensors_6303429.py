# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_6303429.py:22  torch.sin(v3, out=v7)
#   stage aot.trace failed: Unsupported: an `out=` argument that would be resized
import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "inference"
DYNAMIC = True
CALLS = [dict(N=8, M=7), dict(N=0, M=33)]


def make(N, M):
    x0 = fill(9670, (9, N), torch.float32, "positive", "reversed")
    x1 = fill(2927, (9, N), torch.float32, "normal", "transposed")
    return [x0, x1]


def f(x0, x1):
    v0 = torch.diag(x1)
    v1 = v0.roll(1, 0)
    v2 = v1.pow(0.1)
    v3 = torch.diag(x0)
    v4 = x0.median()
    v5 = torch.scatter(
        v1, 0, (torch.arange(v1.numel()).view(v1.shape) * 3 % v1.shape[0]), v1, reduce="add"
    )
    v6 = torch.sub(v5, x1, alpha=2)
    v7 = torch.special.xlogy(v5, -1.5)
    torch.sin(v3, out=v7)
    v9 = torch.dot(v7, v7)
    return (
        v2,
        v4,
        v6,
        v9,
        x1,
        v5,
    )


if __name__ == "__main__":
    show(__file__)
