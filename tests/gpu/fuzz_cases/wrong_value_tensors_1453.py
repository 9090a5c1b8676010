# wrong_value: call 2, result[1]: torch.float32 2 of 32 values, at [0, 1, 1]: eager 1.0, compiled nan, in double 1.0
import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(N=2, M=1), dict(N=2, M=4), dict(N=8, M=4)]


def make(N, M):
    x0 = fill(3915, (M, N, N, 2), torch.float32)
    x1 = fill(9998, (M, 4, 9, N), torch.uint8, "integers")
    x2 = fill(4642, (M, 4, 9, N), torch.float32, "special", "offset", grad=True)
    return [x0, x1, x2]


def f(x0, x1, x2):
    v0 = torch.var_mean(x2, 2, correction=0)[0]
    v1 = torch.arange(0, 1 + 1, 0.5)
    v2 = x1.argmax(3, keepdim=True)
    v3 = torch.where((v0 > 0), v0, 0.5)
    v4 = F.relu6(v1)
    v5 = torch.div(v3, v3, rounding_mode="trunc")
    v6 = F.layer_norm(v3, v3.shape[-1:])
    x1[0] = 3
    v8 = torch.isin(v2, x1)
    v9 = torch.acosh(v6)
    return (
        v4,
        v5,
        v8,
        v9,
        x0,
    )


if __name__ == "__main__":
    show(__file__)
