# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_3004028.py:13  v0 = x0.view(x0.dtype)
#   stage aot.functionalize failed: RuntimeError: tensors used as indices must be long, int, byte or bool tensors
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (), torch.float64)
    return [x0]


def f(x0):
    v0 = x0.view(x0.dtype)
    v2 = v0.broadcast_to((1,))
    v2[0] = -1.5
    return (v2,)


if __name__ == "__main__":
    show(__file__)
