# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_3005668.py:15  v1.fill_(False)
#   stage aot.functionalize failed: Unsupported: writing through aten.permute.default cannot be made functional
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x1 = fill(0, (2, 1))
    return [x1]


def f(x1):
    v0 = x1.expand((-1, 0))
    v1 = v0.movedim(1, 0)
    v1.fill_(False)
    return (v0,)


if __name__ == "__main__":
    show(__file__)
