"""Views of several results, gradients of views, and what is a few views and a copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import suggests_channels_last
from fusewright.formulas.helpers import aten, zeros
from fusewright.formulas.table import When, formula


@formula(aten.split.Tensor, when=When.EVERYWHERE)
def split(x: Tensor, split_size: int, dim: int = 0) -> list[Tensor]:
    """split(x, n) = slices of n rows, the last one shorter."""
    extent = x.shape[dim]
    if split_size == 0:
        return [aten.slice.Tensor(x, dim, 0, extent)]
    count = int((extent + split_size - 1) // split_size) if extent else 1
    starts = [split_size * number for number in range(count)]
    ends = [*starts[1:], extent]
    return [aten.slice.Tensor(x, dim, *bounds) for bounds in zip(starts, ends, strict=True)]


@formula(aten.split_with_sizes.default, when=When.EVERYWHERE)
def split_with_sizes(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    """split_with_sizes(x, [a, b]) = slices of a and b rows."""
    if sum(sizes) != x.shape[dim] or any(size < 0 for size in sizes):
        return NotImplemented  # torch's own error
    pieces = []
    start = 0
    for size in sizes:
        pieces.append(aten.slice.Tensor(x, dim, start, start + size))
        start += size
    return pieces


@formula(aten.unbind.int, when=When.EVERYWHERE)
def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    """unbind(x) = select each index."""
    return [aten.select.int(x, dim, index) for index in range(x.shape[dim])]


@formula(aten.slice_backward.default)
def slice_backward(
    gradient: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Tensor:
    """The gradient of a slice, among zeros."""
    whole = zeros(gradient, sizes)
    return aten.slice_scatter.default(whole, gradient, dim, start, end, step)


@formula(aten.select_backward.default)
def select_backward(gradient: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    """The gradient of one row, among zeros."""
    whole = zeros(gradient, sizes)
    return aten.select_scatter.default(whole, gradient, dim, index)


@formula(aten.diagonal_backward.default)
def diagonal_backward(
    gradient: Tensor, sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> Tensor:
    """The gradient of a diagonal, among zeros."""
    whole = zeros(gradient, sizes)
    return aten.diagonal_scatter.default(whole, gradient, offset, dim1, dim2)


@formula(aten.pixel_shuffle.default)
def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    """[…, c·f·f, h, w] to […, c, h·f, w·f]."""
    *batch, channels, height, width = x.shape
    if channels % (factor * factor):
        return NotImplemented
    rank = len(batch)
    apart = aten.view.default(
        aten.clone.default(x, memory_format=torch.contiguous_format),
        [*batch, channels // factor**2, factor, factor, height, width],
    )
    order = [*range(rank), rank, rank + 3, rank + 1, rank + 4, rank + 2]
    mixed = aten.clone.default(
        aten.permute.default(apart, order), memory_format=torch.contiguous_format
    )
    result = aten.view.default(
        mixed, [*batch, channels // factor**2, height * factor, width * factor]
    )
    return _as_images(result, x)


@formula(aten.pixel_unshuffle.default)
def pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    """[…, c, h·f, w·f] to […, c·f·f, h, w]."""
    *batch, channels, height, width = x.shape
    if height % factor or width % factor:
        return NotImplemented
    rank = len(batch)
    apart = aten.view.default(
        aten.clone.default(x, memory_format=torch.contiguous_format),
        [*batch, channels, height // factor, factor, width // factor, factor],
    )
    order = [*range(rank), rank, rank + 2, rank + 4, rank + 1, rank + 3]
    mixed = aten.clone.default(
        aten.permute.default(apart, order), memory_format=torch.contiguous_format
    )
    result = aten.view.default(
        mixed, [*batch, channels * factor**2, height // factor, width // factor]
    )
    return _as_images(result, x)


def _as_images(result: Tensor, x: Tensor) -> Tensor:
    """On the CPU, images whose channels are last stay so."""
    if x.device.type == "cpu" and x.dim() == 4 and suggests_channels_last(x):
        return aten.clone.default(result, memory_format=torch.channels_last)
    return result
