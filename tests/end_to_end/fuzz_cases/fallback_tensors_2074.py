# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_2074.py:13  x1.index_put_((torch.tensor([0]),), x1[0])
#   stage aot.trace failed: RuntimeError: more than one element of the written-to tensor refers to a single memory location
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = True
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x1 = fill(0, (M,), torch.uint8, "normal", "expanded")
    return [x1]


def f(x1):
    x1.index_put_((torch.tensor([0]),), x1[0])
    return (x1,)


if __name__ == "__main__":
    show(__file__)
