"""Private names of torch for what happens at each call on a GPU; builds for the CPU lack some. The
public ways take longer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


def _none(*_: int) -> int:
    raise RuntimeError("this build of torch has no CUDA")


device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", _none)
"""Number of the current GPU of this thread."""

foreach_copy_ = torch._foreach_copy_
"""Copies tensors into others, those of one type on one GPU in a launch."""

stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _none)
"""The current stream of a GPU in this thread, as the driver's handle."""
