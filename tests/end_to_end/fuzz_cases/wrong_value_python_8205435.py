# wrong_value: call 1, gradient 0: torch.float32 6 of 6 values, at [0, 0]: eager 2.5, compiled 0.5, in double 2.5
import torch
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(seed=92)]


def make(seed):
    return [fill(seed, (3, 2), torch.float32, "integers", grad=True)]


def f(x):
    with torch.no_grad():
        x[0] += 1
        l1 = x.flatten()[:2].int().tolist()
    x += torch.add(sum([x, x]), x, alpha=2).clamp(-40, 40)
    for row in x:
        row.dim()
    x[0] += 1
    return (x, l1)


def drive(f, x):
    return f(x * 1)


if __name__ == "__main__":
    show(__file__)
