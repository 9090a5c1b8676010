# extra_exception: call 1: an illegal memory access: a row of a tensor without rows was loaded
import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "no_grad"
DYNAMIC = True
CALLS = [dict(N=1, M=2)]


def make(N, M):
    x0 = fill(5389, (M, N, 0, 9), torch.bool, "constant", "reversed")
    x1 = fill(8531, (M, N, 0, 9), torch.bool, "integers")
    return [x0, x1]


def f(x0, x1):
    v0 = torch.nonzero(x0)
    v1 = torch.topk(v0, 1, 1)[0]
    v2 = torch.xlogy(v0, v1)
    v3 = torch.squeeze_copy(v2, -1)
    v4 = F.smooth_l1_loss(v2, v2)
    return (
        v3,
        v4,
    )


if __name__ == "__main__":
    show(__file__)
