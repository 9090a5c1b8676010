# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_2671.py:13  x0.pow_(0)
#   stage aot.functionalize failed: RuntimeError: start (0) + length (1) exceeds dimension size (0).
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (N,))
    return [x0]


def f(x0):
    x0.pow_(0)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
