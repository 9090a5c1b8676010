# missing_exception: call 1, exception: backward graph.py:_engine_run_backward: RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [0]], which is output 0 of torch::autograd::NotImplemented, is at version 2; expected version 1 instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "grad"
DYNAMIC = None
CALLS = [dict(N=0, M=0)]


def make(N, M):
    x0 = fill(0, (1,), grad=True)
    x0 = x0 * 0
    return [x0]


def f(x0):
    x0.clamp_(3.25)
    v3 = F.silu(x0)
    x0.set_()
    return (v3,)


if __name__ == "__main__":
    show(__file__)
