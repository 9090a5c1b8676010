# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from f  fuzz_tensors_7200017.py:15
#   the graph raised NameError: name 'Real' is not defined; the call runs as it was written
import torch
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = True
CALLS = [dict(N=8, M=8)]


def make(N, M):
    x0 = fill(4211, (8, N, 8, 5), torch.float16, grad=True)
    x1 = fill(7184, (8, N, 1, 5), torch.float16)
    x2 = fill(7625, (8, 1, 8, 5), torch.float32)
    x3 = fill(3450, (8, N, 1, 5), torch.int64, "normal", "reversed")
    return [x0, x1, x2, x3]


def f(x0, x1, x2, x3):
    v2 = torch.var(x0, 3, unbiased=False)
    return (x0, v2, x2, x2)


if __name__ == "__main__":
    show(__file__)
