# wrong_value: call 1, result[0]: torch.float32 1 of 27 values, at [1, 0, 1]: eager inf, compiled nan, in double inf
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=3, M=0)]


def make(N, M):
    x1 = fill(5423, (N, N, N), torch.float32, "special")
    return [x1]


def f(x1):
    v0 = torch.linalg.norm(x1)
    v5 = torch.sub(v0, x1, alpha=2)
    return (v5,)


if __name__ == "__main__":
    show(__file__)
