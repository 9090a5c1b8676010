# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_7200087.py:15  x0.t_()
#   stage aot.trace failed: Unsupported: aten.t_.default changes the sizes of an input of the graph
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (M,), grad=True)
    x0 = x0 * 0
    x2 = 0
    return [x0, x2]


def f(x0, x2):
    x0.t_()
    return (x2,)


if __name__ == "__main__":
    show(__file__)
