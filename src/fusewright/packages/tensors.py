"""Tensors in a package: a row of its table that describes one, and a section with its memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import torch

from fusewright.errors import PackageRefused
from fusewright.packages.container import PackageFile
from fusewright.packages.structure import torch_constant
from fusewright.runtime.layouts import length_of


def tensor_row(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    """The row that describes a tensor. PackageRefused: it is of a kind that no package holds."""
    if tensor.device.type not in ("cpu", "cuda") or tensor.layout is not torch.strided:
        what = f"a package holds plain tensors on the CPU and GPUs, not {tensor.device}"
        raise PackageRefused(name, what)
    return {
        "name": name,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device": str(tensor.device),
        "size": list(tensor.shape),
        "stride": list(tensor.stride()),
    }


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes from a tensor's first element to its last."""
    if tensor.numel() == 0:
        return memoryview(b"")
    length = length_of(tensor)
    size = length * tensor.element_size()
    if tensor.device.type != "cpu":
        tensor = tensor.as_strided((length,), (1,)).cpu()
    memory = (ctypes.c_char * size).from_address(tensor.data_ptr())
    memory._tensor = tensor  # type: ignore[attr-defined]  # keeps it
    return memoryview(memory).cast("B")


def stored_tensor(file: PackageFile, row: Mapping[str, Any], section: str) -> torch.Tensor:
    """A tensor in the memory that the file is mapped to, or on its GPU."""
    dtype = torch_constant("dtype", row["dtype"])
    device = torch.device(row["device"])
    offset, size = file.places[section]
    if size == 0:
        return torch.empty_strided(row["size"], row["stride"], dtype=dtype, device=device)
    count = size // dtype.itemsize
    memory = torch.frombuffer(file.memory, dtype=dtype, count=count, offset=offset)
    return memory.to(device).as_strided(row["size"], row["stride"])
