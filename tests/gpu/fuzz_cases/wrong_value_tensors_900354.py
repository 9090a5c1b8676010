# wrong_value: call 1, result[2]: torch.float64 1 of 208 values, at [0, 1, 0]: eager 0.0, compiled -0.0, in double 0.0
import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "no_grad"
DYNAMIC = None
CALLS = [dict(N=5, M=13), dict(N=2, M=3)]


def make(N, M):
    x0 = fill(3859, (M, 16), torch.float64, "special")
    return [x0]


def f(x0):
    v0 = F.layer_norm(x0, x0.shape[-2:], eps=1e-3)
    x0[(x0 > 0)] = 1e-3
    v2 = torch.logcumsumexp(x0, -2)
    v2.squeeze_()
    v4 = v2.unsqueeze(-1)
    v5 = torch.special.ndtri(v2)
    v6 = F.local_response_norm(v4, 2)
    v7 = torch.sqrt(v2)
    return (
        v0,
        v5,
        v6,
        v7,
        v4,
    )


if __name__ == "__main__":
    show(__file__)
