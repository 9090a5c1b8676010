"""The placement of a graph's inputs in memory beside each other.

A backend may compute `y * 2` before it writes the new value of `x` back, unless the two share
memory. So where a graph writes, which of its inputs share memory is part of what was captured:

    def f(x, y):            f(base, other)      captured: two storages
        x.add_(1)           f(base, base[2:])   another capture: one storage, offsets 0 and 8
        return y * 2

Inputs that are only read may share memory with each other in any way.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Sequence
from typing import Final

import torch

from fusewright import torch_compat
from fusewright.records import record

READ_ONLY: Final = -1


@record
class Placement:
    """The placement of a tensor in memory beside the other inputs of its graph."""

    group: int
    """Tensors of one group share a storage; those of different groups share no byte. `READ_ONLY`:
    one of those that share no byte with tensors of groups.
    """

    item_size: int
    """Bytes of an element."""

    offset: int | None
    """Bytes from the storage's beginning; None: it does not matter, the group has no other."""

    count: int
    """The number of tensors that are compared."""

    @property
    def metadata(self) -> tuple[int, int, int, int]:
        """The test's operand."""
        offset = -1 if self.offset is None else self.offset
        return self.group, self.item_size, offset, self.count

    def __str__(self) -> str:
        if self.group == READ_ONLY:
            return "memory that is only read"
        if self.offset is None:
            return "memory of its own"
        return f"byte {self.offset} of the storage that it shares"


def placements(
    tensors: Sequence[torch.Tensor], written: Sequence[bool], restrided: Container[int] = ()
) -> tuple[Placement, ...] | None:
    """The placement of each of the tensors; None where different storages overlap. `written`: which
    of them the graph may write to. `restrided`: numbers of those whose offset in the storage
    matters in any case.
    """
    spans = [_span(tensor, number) for number, tensor in enumerate(tensors)]
    distinct = sorted(set(spans))
    if any(left[1] > right[0] for left, right in itertools.pairwise(distinct)):
        return None
    groups = dict.fromkeys(spans, READ_ONLY)
    for number, (span, is_written) in enumerate(zip(spans, written, strict=True)):
        if is_written and groups[span] == READ_ONLY:
            groups[span] = number
    shared = {span for span, count in Counter(spans).items() if count > 1}
    return tuple(
        Placement(
            group=groups[span],
            item_size=tensor.itemsize,
            offset=_offset(tensor)
            if (span in shared and groups[span] != READ_ONLY) or number in restrided
            else None,
            count=len(tensors),
        )
        for number, (tensor, span) in enumerate(zip(tensors, spans, strict=True))
    )


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in memory of its own: not a sparse one, nor a wrapper around others."""
    return tensor.layout == torch.strided and torch_compat.has_storage(tensor)


def _span(tensor: torch.Tensor, number: int) -> tuple[int, int]:
    """The bytes of the tensor's storage; none, at a place of its own, for one without elements."""
    data = tensor.data_ptr() if tensor.numel() else 0
    if data == 0:
        return -number - 1, -number - 1
    begin = data - _offset(tensor)
    return begin, begin + int(tensor.untyped_storage().nbytes())


def _offset(tensor: torch.Tensor) -> int:
    """The offset of the tensor in its storage, in bytes."""
    return int(tensor.storage_offset()) * tensor.itemsize
