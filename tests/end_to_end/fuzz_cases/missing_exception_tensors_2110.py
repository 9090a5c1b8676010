# missing_exception: call 1, exception: call fuzz_tensors_2110.py:f: RuntimeError: setStorage: sizes [1], strides [0], storage offset 0, and itemsize 4 requiring a storage size of 4 are out of bounds for storage of size 0
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x2 = fill(0, (0,))
    return [x2]


def f(x2):
    v9 = x2.as_strided((1,), (0,))
    return (x2,)


if __name__ == "__main__":
    show(__file__)
