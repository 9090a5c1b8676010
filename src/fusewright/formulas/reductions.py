"""Extremes, counts and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.formulas.helpers import aten, filled, pair
from fusewright.formulas.table import formula


@formula(aten.aminmax.default)
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """aminmax(x) = (amin(x), amax(x))."""
    if x.numel() == 0:
        return NotImplemented
    dims = [] if dim is None else [dim]
    return aten.amin.default(x, dims, keepdim), aten.amax.default(x, dims, keepdim)


@formula(aten.count_nonzero.dim_IntList)
def count_nonzero(x: Tensor, dims: Sequence[int] = ()) -> Tensor:
    """count_nonzero(x, dims) = sum(x != 0, dims)."""
    return aten.sum.dim_IntList(aten.ne.Scalar(x, 0), list(dims))


@formula(aten.max_pool2d_with_indices.default)
def max_pool2d_with_indices(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """The indices by way of places in the window, bytes instead of 64-bit integers to save; of 32
    bits between, whose quotients have vectors.
    """
    (height, width), (down, right), (top, left) = (
        pair(kernel),
        pair(stride, kernel),
        pair(padding),
    )
    if height * width > 127 or width > x.shape[-1] or pair(dilation) != (1, 1) or x.numel() == 0:
        return NotImplemented
    extent = x.shape[-1]
    is_small = all(isinstance(e, int) for e in x.shape) and x.shape[-2] * extent < 1 << 31
    integers = {"dtype": torch.int32 if is_small else torch.int64}
    values, indices = aten.max_pool2d_with_indices.default(
        x, kernel, stride, padding, dilation, ceil_mode
    )
    rows, columns = values.shape[-2:]
    device = x.device
    row = aten.arange.start_step(-top, rows * down - top, down, device=device, **integers)
    origin = aten.mul.Tensor(aten.unsqueeze.default(row, 1), extent)
    column = aten.arange.start_step(-left, columns * right - left, right, device=device, **integers)
    origin = aten.add.Tensor(origin, column)  # where each window begins
    apart = aten.sub.Tensor(aten._to_copy.default(indices, **integers), origin)
    # A window of at most `width` columns: apart = row * extent + column, 0 <= column < width, and
    # the window's part outside the image is never the maximum.
    down_by = _quotient(apart, extent, height)
    across = aten.sub.Tensor(apart, aten.mul.Tensor(down_by, extent))
    place = aten.add.Tensor(aten.mul.Tensor(down_by, width), across)
    byte = aten._to_copy.default(place, dtype=torch.int8)
    wide = aten._to_copy.default(byte, **integers)
    down_by = _quotient(wide, width, height)
    across = aten.sub.Tensor(wide, aten.mul.Tensor(down_by, width))
    apart = aten.add.Tensor(aten.mul.Tensor(down_by, extent), across)
    return values, aten._to_copy.default(aten.add.Tensor(apart, origin), dtype=torch.int64)


def _quotient(x: Tensor, divisor: int, bound: int) -> Tensor:
    """x // divisor, which is at least 0 and below `bound`: comparisons take less than a division
    where there are few, and have vectors in any type.
    """
    if bound > 8:
        return aten.div.Tensor_mode(x, divisor, rounding_mode="floor")
    quotient = aten.full.default([], 0, dtype=x.dtype, device=x.device)
    for number in range(1, bound):
        quotient = aten.add.Tensor(quotient, aten.ge.Scalar(x, number * divisor))
    return quotient


@formula(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_with_indices_backward(
    gradient: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Any:
    """The operator itself, without the pooled image, of which it reads sizes and memory format."""
    if x.is_contiguous():
        zero = filled(x, 0)
        image = aten.expand.default(zero, list(x.shape))
    elif x.is_contiguous(memory_format=torch.channels_last):
        order = [0, 2, 3, 1]
        image = aten.empty_permuted.default(list(x.shape), order, dtype=x.dtype, device=x.device)
    else:
        return NotImplemented
    return aten.max_pool2d_with_indices_backward.default(
        gradient, image, kernel, stride, padding, dilation, ceil_mode, indices
    )
