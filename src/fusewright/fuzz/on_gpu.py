"""`python -m fusewright.fuzz.on_gpu REQUESTS ANSWERS DEVICE DYNAMIC`: a process that checks
programs on a GPU for `workers`, which gives it two open descriptors.
"""

from __future__ import annotations

import sys

import torch

from fusewright.fuzz.campaign import generate
from fusewright.fuzz.checking import Way
from fusewright.fuzz.workers import serve


def main() -> None:
    """Serve until there are no more requests."""
    requests, answers, device, dynamic = sys.argv[1:]
    torch.set_num_threads(1)
    serve(int(requests), int(answers), generate, Way({"True": True}.get(dynamic), device))


if __name__ == "__main__":
    main()
