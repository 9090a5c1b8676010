# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from f  fuzz_tensors_921646.py:12
#   the program raises RuntimeError('linalg.vector_norm cannot compute the -1.5 norm on the dimension -3 because this dimension is empty and the operation does not have an identity'), from its own lines
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (1, M, 0))
    return [x0]


def f(x0):
    v1 = torch.linalg.vector_norm(x0, -1.5, -3)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
