# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_3003984.py:14  v3.clamp_(0.1)
#   stage aot.functionalize failed: Unsupported: writing through aten.unfold.default cannot be made functional
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x0 = fill(0, (M,))
    return [x0]


def f(x0):
    v3 = x0.unfold(0, 0, 1)
    v3.clamp_(0.1)
    return (v3,)


if __name__ == "__main__":
    show(__file__)
