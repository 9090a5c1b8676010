# missing_exception: call 1, exception: backward graph.py:_engine_run_backward: RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [1]], which is output 0 of torch::autograd::CopySlices, is at version 1; expected version 0 instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).
import torch
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x1 = fill(0, (0,), grad=True)
    return [x1]


def f(x1):
    v0 = x1.sum(0, keepdim=True)
    v1 = torch.cummax(v0, 0).values
    v2 = torch.masked_select(v1, v1 > 0)
    v0[0] = 0.001
    return (v2,)


if __name__ == "__main__":
    show(__file__)
