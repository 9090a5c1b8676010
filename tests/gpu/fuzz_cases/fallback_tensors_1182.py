# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from f  fuzz_tensors_1182.py:14
#   the graph raised RuntimeError: a library call returned torch.float16 of size () where torch.float32 of size () was compiled for; please report this; the call runs as it was written
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (M, M))
    x1 = 0
    x2 = fill(0, (M, M), torch.float16)
    return [x0, x2]


def f(x0, x2):
    v1 = F.binary_cross_entropy_with_logits(x0, x2)
    return (v1,)


if __name__ == "__main__":
    show(__file__)
