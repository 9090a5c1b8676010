"""Tensors of no elements that hold memory whose size only is known when a graph has run: what a
library call or a while loop keeps for its backward.

    workspace of 28672 bytes   ->   tensor of size (0,) in a storage of 28672 bytes

They pass through graphs as tensors whose size can be foretold, and nobody computes with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def held(tensor: Tensor, size: Sequence[int] = (0,), dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of this size, of no elements, that holds the memory of a contiguous `tensor`."""
    return _in_memory(tensor, dtype or tensor.dtype, size)


def released(holder: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """All that `holder` holds, in one dimension."""
    dtype = dtype or holder.dtype
    count = holder.untyped_storage().nbytes() // dtype.itemsize
    return _in_memory(holder, dtype, (count,))


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """The stack of tensors; of those that hold memory, what holds the memory of all."""
    first = tensors[0]
    lengths = [one.untyped_storage().nbytes() for one in tensors]
    if first.shape != (0,) or not any(lengths):
        return torch.stack(list(tensors))
    header = torch.tensor(lengths, device=first.device).view(torch.uint8)
    memory = torch.cat([header, *[released(one, torch.uint8) for one in tensors]])
    return _in_memory(memory, first.dtype, (len(tensors), 0))


def unstacked(stack: Tensor) -> tuple[Tensor, ...]:
    """The tensors in a stack."""
    if stack.shape[1:] != (0,) or not stack.untyped_storage().nbytes():
        return stack.unbind(0)
    memory = released(stack, torch.uint8)
    begin = stack.shape[0] * torch.int64.itemsize
    found = []
    for length in memory[:begin].view(torch.int64).tolist():
        own = memory[begin : begin + length].clone()
        found.append(_in_memory(own, stack.dtype, (0,)))
        begin += length
    return tuple(found)


def _in_memory(tensor: Tensor, dtype: torch.dtype, size: Sequence[int]) -> Tensor:
    """A tensor of its own at the beginning of the memory of another."""
    found = torch.empty(0, dtype=dtype, device=tensor.device)
    return found.set_(tensor.untyped_storage(), 0, size, (1,) * len(size))
