"""Views, checks, and how tensors lie in memory: what native plans and generated modules call."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable

import torch

from fusewright.errors import UnmetSize, WrongLayout, WrongResult
from fusewright.native import read_tensor
from fusewright.operators import facts, is_of_torch
from fusewright.records import record


def reinterpret(
    tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> torch.Tensor:
    """The memory of `tensor` through another layout; `offset` counts from its own first element."""
    return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)


def length_of(tensor: torch.Tensor) -> int:
    """Elements of memory from the tensor's first to its last, gaps included."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0


@record
class Addresses:
    """The memory from a tensor's first byte to behind its last."""

    begin: int
    end: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Addresses:
        """Those of a strided tensor."""
        begin = tensor.data_ptr()
        return cls(begin, begin + length_of(tensor) * tensor.element_size())

    def overlap(self, other: Addresses) -> bool:
        """Whether a byte belongs to both."""
        return self.begin < other.end and other.begin < self.end


def write_into(target: torch.Tensor, value: torch.Tensor) -> None:
    """Copy `value` into `target`; once, where several elements of that are one in memory."""
    if 0 in target.stride():
        once = tuple([slice(0, 1) if step == 0 else slice(None) for step in target.stride()])
        target, value = target[once], value[once]
    target.copy_(value)


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


layout_copies: Counter[str] = Counter()
"""How often results of library calls were copied, by whose they were: `with_layout`."""


def with_layout(
    tensor: torch.Tensor,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    whose: str = "",
) -> torch.Tensor:
    """`tensor`, the result of a library call, laid out as was compiled for: itself, or a copy where
    the operator chose other strides. Dimensions of one element may have any stride. Copies of what
    is somebody's are counted.

    Raises: WrongResult, where the operator returned another size or type, which kernels would read
    beyond its end or as other numbers; UnmetSize, where it was to find the size in data.
    """
    if _is_laid_out(tensor, size, stride, dtype, whose):
        return tensor
    if whose:
        layout_copies[whose] += 1
    planned = torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)
    return planned.copy_(tensor)


def exact_layout(
    tensor: torch.Tensor,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    whose: str = "",
) -> torch.Tensor:
    """The same, which refuses to copy. Raises: WrongLayout, and as `with_layout`."""
    if _is_laid_out(tensor, size, stride, dtype, whose):
        return tensor
    raise WrongLayout(
        f"a result of stride {tensor.stride()} would be copied at each call, since {stride} was "
        f"compiled for: {whose}\n  options={{'strict': True}} makes this an error; please report "
        "it, or, for an operator of your own, let its fake implementation return the real strides"
    )


def _is_laid_out(
    tensor: torch.Tensor,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    whose: str,
) -> bool:
    """Whether no copy is needed. Raises: WrongResult and UnmetSize, as `with_layout`."""
    own = tensor.stride()
    if own == stride and tensor.shape == size and tensor.dtype is dtype:
        return True
    operator, _, _ = whose.partition(",")
    if tensor.dtype == dtype and tensor.shape != size and facts(operator).sizes_from_values:
        raise UnmetSize(
            f"{whose}: its size, found in data, is {tuple(tensor.shape)}, and what reads it was "
            f"compiled for {size}"
        )
    if tuple(tensor.shape) != size or tensor.dtype != dtype:
        raise WrongResult(
            f"{whose or 'a library call'}: returned {tensor.dtype} of size {tuple(tensor.shape)} "
            f"where {dtype} of size {size} was compiled for",
            "please report this"
            if not whose or is_of_torch(operator)
            else f"the fake implementation of {operator} says so: correct that",
        )
    return 0 in size or all(n == 1 or a == b for n, a, b in zip(size, own, stride, strict=True))
