# crash: call 1, exception: call guard_pages.py:_run: MemoryFault: kernel cpu_cat_argmax_sign_d02a2954 touched byte -16 of in1 (int32, size (4, 2), strides (1, 4), 32 bytes), before its beginning doing units 0 to 1
# group [i0<8]
#   read in0: i32 on cpu
#   read in1: i32 on cpu
#   write out0: i32 on cpu
#   write out1: i64 on cpu
#   local m0: i64
#   stage over [r0<2]
#     t0 = index i0: i64
#     t1 = lt t0, 4
#     t2 = load in0[2*i0 + r0]
#     t3 = masked t1, t2, 0
#     t4 = ge t0, 4
#     t5 = load in1[4*r0 + i0 - 4]
#     t6 = masked t4, t5, 0
#     t7 = where t1, t3, t6
#     store out0[2*i0 + r0] = t7
#     reduce m0 = argmax t7
#   stage
#
import torch
from torch.nn import functional as F
from fusewright.fuzz import fill, show

MODE = "plain"
DYNAMIC = None
CALLS = [dict(N=4, M=0)]


def make(N, M):
    x1 = fill(0, (N, 2), torch.int32)
    x2 = fill(0, (N, 2), torch.int32, "normal", "transposed")
    return [x1, x2]


def f(x1, x2):
    v0 = torch.vstack([x1, x2])
    v4 = v0.argmax(-1)
    v5 = torch.sign(v4)
    return (v5, v0)


if __name__ == "__main__":
    show(__file__)
