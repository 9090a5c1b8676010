# missing_exception: call 1, exception: call fuzz_tensors_3011065.py:f: IndexError: index out of range in self
import torch
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=0, M=2)]


def make(N, M):
    x1 = fill(0, (M,), torch.bool, "normal", "expanded")
    return [x1]


def f(x1):
    v2 = torch.index_select(x1, -0, torch.tensor([2]))
    v5 = []
    return (v5,)


if __name__ == "__main__":
    show(__file__)
