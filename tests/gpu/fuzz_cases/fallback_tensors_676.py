# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from f  fuzz_tensors_676.py:13
#   the graph raised RuntimeError: a library call returned torch.bfloat16 of size (5, 5, 2) where torch.bfloat16 of size (5, 5, 1, 2) was compiled for; please report this; the call runs as it was written
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "no_grad"
DYNAMIC = None
CALLS = [dict(N=5, M=2)]


def make(N, M):
    x0 = fill(2813, (N, N, 9, M), torch.int64, "positive")
    x1 = fill(1844, (N, N, 1, M), torch.bfloat16, "normal", "expanded")
    return [x0, x1]


def f(x0, x1):
    v1 = torch.linalg.vector_norm(x1, -1.5, -2)
    v3 = x1.contiguous()
    v4 = torch.rsub(v3, v3, alpha=0)
    v5 = torch.scatter(v1, -2, torch.arange(v1.numel()).view(v1.shape) * 3 % v1.shape[1], 2)
    v6 = x1 < x1
    v7 = F.mse_loss(v1, v5, reduction="none")
    return (v4, v6, v7)


if __name__ == "__main__":
    show(__file__)
