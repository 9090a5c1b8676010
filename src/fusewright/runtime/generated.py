"""What generated Python modules import: kernels, views, checks, and their own benchmark."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch

from fusewright.ir.ops import NUMBER_FUNCTIONS
from fusewright.native import read_tensor
from fusewright.runtime.cpu import KernelSource
from fusewright.runtime.cuda import TritonSource
from fusewright.runtime.debug_printer import assert_layout, check_nan, debug_print
from fusewright.runtime.measuring import Input, Size, measure
from fusewright.runtime.memory_checks import allocator
from fusewright.runtime.targets import load_kernels

__all__ = [
    "NUMBER_FUNCTIONS",
    "Input",
    "KernelSource",
    "Size",
    "TritonSource",
    "allocator",
    "assert_layout",
    "check_fact",
    "check_nan",
    "constant",
    "debug_print",
    "load_kernels",
    "measure",
    "reinterpret",
    "tensor_kind",
    "with_layout",
]

CONSTANTS = "__constants__"
"""The global of a generated module through which its loader hands over compile-time tensors."""


def constant(namespace: Mapping[str, object], name: str, kind: Input | None = None) -> torch.Tensor:
    """The compile-time tensor `name` of the generated module whose globals are `namespace`; a
    random one where that is run by itself to be measured.
    """
    constants = namespace.get(CONSTANTS)
    if not isinstance(constants, Mapping):
        if kind is not None and namespace["__name__"] == "__main__":
            return kind.random({})
        raise RuntimeError(
            f"this module needs the constant {name}, whose data was not stored with the source"
        )
    constant: torch.Tensor = constants[name]
    return constant


def reinterpret(
    tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> torch.Tensor:
    """The memory of `tensor` through another layout; `offset` counts from its own first element."""
    return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)


def tensor_kind(
    dtype: torch.dtype, device: str | torch.device
) -> tuple[int, int, int, torch.dtype, Callable[..., torch.Tensor]]:
    """The dtype and device of a tensor that a native plan makes: torch's numbers of the dtype, of
    the type of device and of the device; then the dtype itself, and what makes one of sizes and
    strides.
    """
    _, number, device_type, index, *_ = read_tensor(torch.empty(0, dtype=dtype, device=device))
    make = functools.partial(torch.empty_strided, dtype=dtype, device=device)
    return number, device_type, index, dtype, make


def check_fact(number: float, message: str) -> None:
    """Raises RuntimeError with the message where a number is negative."""
    if number < 0:
        raise RuntimeError(message)


def with_layout(
    tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """`tensor`, the result of a library call, laid out as was compiled for: itself, or a copy where
    the operator chose other strides. Dimensions of one element may have any stride.

    Raises: RuntimeError, where the operator returned another size or type, which kernels would read
    beyond its end or as other numbers.
    """
    found = tensor.stride()
    if found == stride and tensor.shape == size and tensor.dtype is dtype:
        return tensor
    if tuple(tensor.shape) != size or tensor.dtype != dtype:
        raise RuntimeError(
            f"a library call returned {tensor.dtype} of size {tuple(tensor.shape)} where {dtype} "
            f"of size {size} was compiled for; please report this"
        )
    if 0 in size or all(n == 1 or a == b for n, a, b in zip(size, found, stride, strict=True)):
        return tensor
    planned = torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)
    return planned.copy_(tensor)
