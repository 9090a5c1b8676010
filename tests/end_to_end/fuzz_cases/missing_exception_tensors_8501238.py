# missing_exception: call 1, exception: backward graph.py:_engine_run_backward: RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [0]] is at version 1; expected version 0 instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).
import torch
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = False
CALLS = [dict(N=0, M=1)]


def make(N, M):
    x0 = fill(0, (M,), grad=True)
    return [x0]


def f(x0):
    v0 = x0.diff()
    v1 = torch.masked_select(v0, v0 > 0)
    v0.fill_(0)
    return (v1,)


if __name__ == "__main__":
    show(__file__)
