# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_6302308.py:13  v0 = torch.fft.rfft(x0)
#   stage lower failed: Unsupported: a view of a tensor that sizes and strides do not express
import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=63, M=9), dict(N=129, M=17)]


def make(N, M):
    x0 = fill(8876, (9, N), torch.float32, "normal", "offset")
    return [x0]


def f(x0):
    v0 = torch.fft.rfft(x0)
    v1 = v0.flatten(0, 1)
    return (v1,)


if __name__ == "__main__":
    show(__file__)
