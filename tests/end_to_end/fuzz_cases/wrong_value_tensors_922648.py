# wrong_value: call 1, result[0]: torch.complex64 1 of 4 values, at [2]: eager (nan+nanj), compiled (inf+nanj), in double (nan+nanj)
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (4,), torch.complex64, "special")
    return [x0]


def f(x0):
    v2 = torch.div(x0, 1)
    v3 = torch.add(v2, v2)
    return (v3,)


if __name__ == "__main__":
    show(__file__)
