# crash: call 1, process: SIGSEGV known_values.py run_on_cpu
import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(N=2, M=5)]


def make(N, M):
    x0 = fill(2595, (31,), torch.bfloat16, "integers", grad=True)
    return [x0]


def f(x0):
    v0 = x0.var(-1)
    v1 = torch.sgn(v0)
    v2 = torch.atleast_3d(x0)
    return (
        v1,
        v2,
        x0,
    )


if __name__ == "__main__":
    show(__file__)
