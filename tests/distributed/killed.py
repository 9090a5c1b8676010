"""One rank of two, which train a compiled model; the second kills itself in the third step. What
becomes of the first is seen in its exit status.
"""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fusewright


def main() -> None:
    dist.init_process_group("gloo")
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    reducer = DistributedDataParallel(model, bucket_cap_mb=0.001)
    compiled = fusewright.compile(reducer)
    for step in range(5):
        loss = compiled(torch.ones(2, 64)).sum()
        if step == 2 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        print(f"step {step}", flush=True)


if __name__ == "__main__":
    main()
