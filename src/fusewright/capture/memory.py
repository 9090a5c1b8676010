"""The bytes of memory that a fake shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.fake_rules.arguments import by_name
from fusewright.fake_rules.geometry import extent

RESTRIDING: Final = {
    **dict.fromkeys(
        ("as_strided", "as_strided_", torch.as_strided, torch.as_strided_, torch.as_strided_copy),
        ("self", "size", "stride", "storage_offset"),
    ),
    **dict.fromkeys(
        (torch.ops.aten.as_strided, torch.ops.aten.as_strided.default),
        ("self", "size", "stride", "storage_offset"),
    ),
    **dict.fromkeys(
        ("as_strided_scatter", torch.as_strided_scatter),
        ("self", "src", "size", "stride", "storage_offset"),
    ),
}
"""Calls that count from the beginning of a tensor's storage, with the names of their arguments; a
string names a method.
"""


def restrided_bytes(
    function: Any, arguments: Sequence[Any], keywords: dict[str, Any]
) -> tuple[Any, Any]:
    """The range of bytes of the storage that a call of one of `RESTRIDING` shows."""
    named = by_name(RESTRIDING[function], arguments, keywords)
    tensor = named["input"] if "input" in named else named["self"]
    size, stride, begin = named["size"], named["stride"], named.get("storage_offset")
    if begin is None:
        begin = _inside(tensor).storage_offset()
    return begin * tensor.itemsize, extent(size, stride, begin) * tensor.itemsize


def shown_bytes(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The range of bytes from the first element of a fake to the end of the last, in its
    storage.
    """
    inside = _inside(tensor)
    begin = inside.storage_offset()
    end = extent(inside.shape, inside.stride(), begin)
    return begin * tensor.itemsize, end * tensor.itemsize


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether there is nothing between the elements of a fake in its memory."""
    begin, end = shown_bytes(tensor)
    return bool(end - begin == tensor.numel() * tensor.itemsize)


def _inside(tensor: torch.Tensor) -> torch.Tensor:
    """The meta tensor in a fake, which alone knows a symbolic geometry."""
    return getattr(torch_compat.unwrapped(tensor), "meta_tensor", tensor)
