import torch

from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=17)]


def make(N):
    x0 = fill(9178, (N, 17), torch.float32, "special")
    x1 = fill(5005, (1, 17), torch.float32, "positive", "reversed")
    return [x0, x1]


def f(x0, x1):
    v0 = x0.expand((-1, -1))
    v2 = x1.permute(1, 0)
    torch.add(v2, v2, out=v0)
    return (v2 + 1, x0)


if __name__ == "__main__":
    show(__file__)
