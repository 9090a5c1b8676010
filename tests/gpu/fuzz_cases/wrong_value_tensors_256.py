# wrong_value: call 1, result[1]: torch.uint8: eager 255, compiled 0: a negative float in an unsigned byte
import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(N=13, M=2)]


def make(N, M):
    x0 = fill(9698, (N, M, 2, M), torch.bfloat16, grad=True)
    x0 = x0 * 1
    return [x0]


def f(x0):
    v0 = x0.tril(4)
    v1 = x0 >= x0
    v2 = torch.nan_to_num(v0, 0.0).clamp(-90, 90).to(torch.uint8)
    return (
        v1,
        v2,
        v0,
    )


if __name__ == "__main__":
    show(__file__)
