# wrong_value: call 1, result[0]: torch.float16 2 of 2 values, at [0]: eager 5.29296875, compiled 2.646484375, in double 5.29296875
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = False
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (2,), torch.float16, "normal", "expanded")
    return [x0]


def f(x0):
    x0.index_put_((torch.tensor([0]),), x0[0], accumulate=True)
    return (x0,)


if __name__ == "__main__":
    show(__file__)
