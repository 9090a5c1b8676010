# wrong_value: call 1, result[0]: torch.float32 2 of 16 values, at [3, 1]: eager 0.0, compiled -0.0, in double 0.0
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=2, M=0)]


def make(N, M):
    x1 = fill(0, (8, N))
    return [x1]


def f(x1):
    v4 = F.softshrink(x1)
    return (v4,)


if __name__ == "__main__":
    show(__file__)
