# wrong_value: gradient 0: eager 0.000833 at x1 = inf, compiled nan
import torch
from fusewright.fuzz import fill, show

MODE = "grad"


def make():
    return [fill(0, (7,), torch.float16, "special", grad=True)]


def f(x1):
    v0 = torch.tan(x1)
    v1 = x1 * 0.001
    v2 = torch.nonzero(v0)
    return (v1,)


if __name__ == "__main__":
    show(__file__)
