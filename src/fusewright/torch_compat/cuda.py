"""Private names of torch for what happens at each call on a GPU; builds for the CPU lack some. The
public ways take longer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import torch


def _none(*_: object) -> int:
    raise RuntimeError("this build of torch has no CUDA")


TYPE: Final = "cuda"
"""Torch's name of the type of device that GPUs are."""


def _accelerator() -> int:
    """The current one of a build without CUDA, which may have fakes on GPUs; 0 where there is
    none.
    """
    exists = torch.accelerator.current_accelerator() is not None
    return torch.accelerator.current_device_index() if exists else 0


device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", _accelerator)
"""Number of the current GPU of this thread."""

foreach_copy_ = torch._foreach_copy_
"""Copies tensors into others, those of one type on one GPU in a launch."""

stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _none)
"""The current stream of a GPU in this thread, as the driver's handle."""


def storage_use_counts(tensors: Iterable[torch.Tensor]) -> list[int]:
    """For each tensor, how many tensors and storage objects share its memory."""
    return [_use_count(tensor.untyped_storage()._cdata) for tensor in tensors]


_use_count: Callable[[int], int] = torch._C._storage_Use_Count


def stop_recording(device: int, pool: tuple[int, int]) -> bool:
    """Stop recording into a pool of memory of a GPU, which torch takes for under way though it has
    failed. False: torch does not.
    """
    try:
        _end_allocations(device, pool)
    except RuntimeError:
        return False
    _release_pool(device, pool)
    return True


_end_allocations: Callable[[int, tuple[int, int]], object] = getattr(
    torch._C, "_cuda_endAllocateToPool", _none
)
_release_pool: Callable[[int, tuple[int, int]], object] = getattr(
    torch._C, "_cuda_releasePool", _none
)


class StreamUser(Protocol):
    """What wants to know which streams use its memory."""

    def uses(self, stream: torch.cuda.Stream) -> None:
        """Take note of a stream."""


_STREAM_USERS: WeakValueDictionary[int, StreamUser] = WeakValueDictionary()
"""By the address of a storage."""


def tell_of_streams(storages: Iterable[torch.UntypedStorage], user: StreamUser) -> None:
    """Tell `user`, as long as it lives, of each stream for which a program calls `record_stream` of
    a tensor in one of these storages. The allocator keeps to itself what it is told.
    """
    if torch.Tensor.record_stream is not record_stream:
        torch.Tensor.record_stream = record_stream  # type: ignore[assignment,method-assign]
    for storage in storages:
        _STREAM_USERS[storage._cdata] = user


_record_stream: Callable[..., None] = torch.Tensor.record_stream


@functools.wraps(_record_stream)
def record_stream(tensor: torch.Tensor, stream: Any) -> None:
    """`Tensor.record_stream`, which tells those who want to know."""
    _record_stream(tensor, stream)
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        user = _STREAM_USERS.get(tensor.untyped_storage()._cdata)
        if user is not None:
            user.uses(stream)
