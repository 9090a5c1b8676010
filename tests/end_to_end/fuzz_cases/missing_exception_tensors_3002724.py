# missing_exception: call 1, exception: call functional.py:interpolate: RuntimeError: Non-empty 3D data tensor expected but got a tensor with sizes [1, 0, 1]
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "inference"
DYNAMIC = None
CALLS = [dict(N=1, M=0)]


def make(N, M):
    x0 = 0
    x1 = fill(0, (N, M, N))
    return [x0, x1]


def f(x0, x1):
    v3 = F.interpolate(x1, size=1)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
