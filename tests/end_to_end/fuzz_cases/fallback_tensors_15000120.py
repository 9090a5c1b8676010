# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_15000120.py:13  v3 = x0.reshape(3, -1)
#   stage lower failed: Unsupported: a view of a tensor that sizes and strides do not express
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x0 = fill(0, (2, 9, M), torch.float32, "integers", "transposed")
    return [x0]


def f(x0):
    v3 = x0.reshape(3, -1)
    v5 = v3.diagonal()
    return (v5,)


if __name__ == "__main__":
    show(__file__)
