"""One rank of two, which train a compiled model: the second one's compiler takes longer than the
process group waits. What the first one says is seen in its output.
"""

from __future__ import annotations

import datetime
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import fx, nn
from torch.nn.parallel import DistributedDataParallel

import fusewright
from fusewright import ranks

ranks.NOTICE_SECONDS = 0.4


def slow(module: fx.GraphModule, inputs: Any) -> Any:
    if dist.get_rank() == 1:
        time.sleep(12)
    return module.forward


def main() -> None:
    dist.init_process_group("gloo")
    group = dist.new_group(timeout=datetime.timedelta(seconds=8))
    reducer = DistributedDataParallel(nn.Linear(4, 4), process_group=group)
    fusewright.compile(torch.sin, backend="eager")(torch.ones(1))  # all is imported, on both
    dist.barrier()
    fusewright.compile(reducer, backend=slow)(torch.ones(2, 4)).sum().backward()


if __name__ == "__main__":
    main()
