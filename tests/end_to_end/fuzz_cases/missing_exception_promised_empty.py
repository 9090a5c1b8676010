# missing_exception: what data decides to be one element was shown as none: the promise was checked
# by a number that the promise itself had told
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=1), dict(N=5)]


def make(N):
    x0 = fill(0, (N,))
    return [x0]


def f(x0):
    v0 = x0[x0 > 0].reshape(0, 2)
    v1 = x0.nonzero().reshape(0)
    return (x0, v0, v1)


if __name__ == "__main__":
    show(__file__)
