# fallback: call 1, fallback: fusewright.fallbacks: running eagerly from fuzz_tensors_8005477.py:13  v0 = x1 + x1
#   stage aot.clean up failed: RuntimeError: Tried to erase Node index_put but it still had 1 users in the graph: {add_1: None}!
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x1 = fill(0, (1, 1), grad=True)
    return [x1]


def f(x1):
    v0 = x1 + x1
    v2 = F.embedding_bag(torch.tensor([[0]]), v0)
    return (v2,)


if __name__ == "__main__":
    show(__file__)
