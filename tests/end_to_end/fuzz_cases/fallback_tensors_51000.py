import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=50)]


def make(N):
    return [fill(1, (N,), torch.float32), fill(2, (N,), torch.float64)]


def f(x0, x1):
    v0 = x0.std()
    v1 = torch.copysign(v0, v0).half()
    v2 = torch.copysign(x0, x1.float()).half()
    v3 = torch.copysign(x0, x1.half().float()).bfloat16()
    return (v1, v2, v3)


if __name__ == "__main__":
    show(__file__)
