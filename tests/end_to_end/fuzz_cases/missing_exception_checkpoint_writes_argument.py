import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from fusewright.fuzz import fill, leaf, show, weights


class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * self.gain


class Checkpointed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


MODEL = Checkpointed(nn.Sequential(nn.ReLU(inplace=True), Scale(1)))
OPTIMIZER = torch.optim.RMSprop(MODEL.parameters())
MODE = "plain"
DYNAMIC = False
CALLS = [dict(seed=0, shape=(3,))]
STATE = ("OPTIMIZER",)


def make(seed, shape):
    return [fill(seed, shape, torch.float32)]


def f(x):
    out = MODEL(x)
    return (out, F.mse_loss(out, out))


def drive(f, x):
    out, loss = f(x)
    loss.backward()
    return (loss,)


if __name__ == "__main__":
    show(__file__)
