# wrong_value: call 1, result[3]: torch.float32 15 of 32 values, at [1, 0]: eager 0.07262062281370163, compiled 0.3858397305011749, in double 0.07262062150061865
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = True
CALLS = [dict(N=3, M=16)]


def make(N, M):
    x0 = fill(9195, (M, N), torch.float32, "normal", "sliced", grad=True)
    x1 = fill(3670, (17,), torch.float32, grad=True)
    x2 = fill(8993, (17,), torch.float32, "positive", grad=True)
    return [x0, x1, x2]


def f(x0, x1, x2):
    v0 = x2.unfold(0, 2, 1)
    v1 = torch.select_scatter(v0, v0.select(-1, 0), 1, -1)
    v2 = v1.median(1).values
    v3 = torch.zeros_like(v2)
    v4 = torch.einsum("ij,j->ij", v1, v1[0])
    v5 = v3[..., torch.tensor([10, 1])]
    v6 = torch.hstack([x2, x1])
    v7 = v0.amax((0, 1))
    v8 = F.margin_ranking_loss(v5, v5, torch.ones_like(v5))
    v9 = torch.index_add(v4, -2, torch.tensor([10, 2]), v4.index_select(0, torch.tensor([10, 2])))
    return (v6, v7, v8, v9, x2)


if __name__ == "__main__":
    show(__file__)
