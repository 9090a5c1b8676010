# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_3050.py:13  v1 = x0.unfold(-0, 0, 1)
#   stage aot.trace failed: UnsupportedOperator: a view, with gradients, of an expanded tensor is returned: its gradient would be that of the memory, not that of each element
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (N,), grad=True)
    return [x0]


def f(x0):
    v1 = x0.unfold(-0, 0, 1)
    return (v1,)


if __name__ == "__main__":
    show(__file__)
