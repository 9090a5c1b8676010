# extra_exception: call 1, exception: backward _ops.py:__call__: RuntimeError: shape mismatch: value tensor of shape [19] cannot be broadcast to indexing result of shape [22]
import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = True
CALLS = [dict(N=8, M=5), dict(N=5, M=16), dict(N=31, M=1)]


def make(N, M):
    x0 = fill(1040, (M, N), torch.float16, "normal", "transposed", grad=True)
    x1 = fill(2433, (M, N), torch.float16, "integers", grad=True)
    return [x0, x1]


def f(x0, x1):
    v0 = torch.atan2(x0, x1)
    v1 = torch.nonzero(v0).reshape(-1)
    v2 = torch.tan(v0)
    v3 = torch.cat([v0, v2], -1)
    v4 = torch.atanh(x0)
    v5 = v2[(v2 > 0)].max()
    return (
        v1,
        v3,
        v4,
        v5,
    )


if __name__ == "__main__":
    show(__file__)
