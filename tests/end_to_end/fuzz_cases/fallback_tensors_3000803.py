# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_3000803.py:14  v3.cumsum_(0)
#   stage aot.functionalize failed: Unsupported: writing through aten.expand.default cannot be made functional
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=0, M=1)]


def make(N, M):
    x1 = fill(0, (M, 2, M))
    return [x1]


def f(x1):
    v3 = x1.broadcast_to((-1, -1, -0))
    v3.cumsum_(0)
    return (v3,)


if __name__ == "__main__":
    show(__file__)
