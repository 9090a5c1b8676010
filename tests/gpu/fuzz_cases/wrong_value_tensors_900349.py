# wrong_value: call 1, result[0]: torch.bfloat16 6 of 1080 values, at [3, 4, 13]: eager -0.11474609375, compiled 0.0, in double -0.11474609375
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "inference"
DYNAMIC = False
CALLS = [dict(N=13, M=7)]


def make(N, M):
    x0 = fill(8476, (9, 8, N), torch.bfloat16, "constant")
    return [x0]


def f(x0):
    v1 = F.pad(x0, (1, 1), mode="circular")
    v5 = F.smooth_l1_loss(v1, v1, beta=1.5, reduction="sum")
    v6 = F.smooth_l1_loss(x0, x0, reduction="none")
    v8 = torch.atleast_3d(v5)
    v9 = v5 == x0
    return (v1, v6, v8, v9)


if __name__ == "__main__":
    show(__file__)
