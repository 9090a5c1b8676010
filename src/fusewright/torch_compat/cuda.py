"""Private names of torch for launching kernels on a GPU, which builds for the CPU lack. The public
ways take ten times as long, at each launch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


def _none(*_: int) -> int:
    raise RuntimeError("this build of torch has no CUDA")


device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", _none)
"""Number of the current GPU of this thread."""

stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _none)
"""The current stream of a GPU in this thread, as the driver's handle."""
