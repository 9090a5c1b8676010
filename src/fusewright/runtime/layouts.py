"""Views, checks, and how tensors lie in memory: what native plans and generated modules call."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from fusewright.native import read_tensor


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
