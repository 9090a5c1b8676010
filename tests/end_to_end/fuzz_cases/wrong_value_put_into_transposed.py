# wrong_value: a copy that is stored into was row-major, and as_strided showed it by eager's strides
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=2), dict(N=4)]


def make(N):
    x0 = fill(0, (3, N)).t()
    return [x0]


def f(x0):
    v0 = torch.index_put(x0, (torch.tensor([0]),), x0[0])
    v0.fill_diagonal_(0)
    v1 = torch.index_put(x0, (torch.tensor([0]),), torch.ones(3))
    v1.fill_diagonal_(0)
    return (v0, v1)


if __name__ == "__main__":
    show(__file__)
