"""Rows that indices choose, and ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.formulas.helpers import aten, column, filled, is_computed, row, zeros
from fusewright.formulas.table import formula


@formula(aten.index_fill.int_Scalar)
def index_fill(x: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """index_fill(x, dim, index, v) = v where the position along `dim` is in `index`; negative
    indices count from the end, and one that is out of bounds is refused, unless `x` has no
    elements.
    """
    if x.dim() == 0 or isinstance(value, complex) or 0 in x.shape:
        return NotImplemented
    none = aten.full.default([x.shape[dim]], False, dtype=torch.bool, device=x.device)
    hit = aten.full.default([], True, dtype=torch.bool, device=x.device)
    hits = aten.index_put.default(none, [row(index)], hit)
    shape = [1] * x.dim()
    shape[dim] = x.shape[dim]
    return aten.where.self(aten.view.default(hits, shape), filled(x, value), x)


@formula(aten.index_put.default)
def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """index_put(x, [mask], number) = where(mask, number, x); indices of the CPU are sent to where
    `x` is, as eager does.
    """
    sent = _sent(indices, x)
    if sent is not None:
        return aten.index_put.default(x, sent, values, accumulate)
    (mask, *others) = indices
    if accumulate or others or mask is None or mask.dtype is not torch.bool or values.dim():
        return NotImplemented
    if mask.shape != x.shape[: mask.dim()] or values.dtype != x.dtype:
        return NotImplemented  # torch's own error
    spread = aten.view.default(mask, [*mask.shape, *[1] * (x.dim() - mask.dim())])
    return aten.where.self(spread, values, x)


@formula(aten.index.Tensor)
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """index(x, indices), with indices of the CPU sent to where `x` is, as eager does."""
    sent = _sent(indices, x)
    return NotImplemented if sent is None else aten.index.Tensor(x, sent)


def _sent(indices: Sequence[Tensor | None], x: Tensor) -> list[Tensor | None] | None:
    """The indices where `x` is; None: they are there."""
    if all(index is None or index.device == x.device for index in indices):
        return None
    return [
        None if index is None else aten._to_copy.default(index, device=x.device)
        for index in indices
    ]


@formula(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    gradient: Tensor, indices: Tensor, count: int, padding_index: int, scale_by_frequency: bool
) -> Any:
    """Each row added to zeros at its index, but for those of the padding. On a GPU eager adds in
    order, and half types in float32.
    """
    if scale_by_frequency or not is_computed(gradient) or indices.numel() == 0:
        return NotImplemented
    if gradient.device.type != "cpu":
        return NotImplemented
    if padding_index >= 0:
        is_padding = column(aten.eq.Scalar(indices, padding_index))
        zero = filled(gradient, 0)
        gradient = aten.where.self(is_padding, zero, gradient)
    table = zeros(gradient, [count, gradient.shape[-1]])
    return aten.index_put.default(table, [indices], gradient, True)


@formula(aten.arange.default)
def arange(end: Any, **options: Any) -> Tensor:
    """arange(end) = arange(0, end, 1)."""
    return aten.arange.start_step(0, end, 1, **options)


@formula(aten.arange.start)
def arange_start(start: Any, end: Any, **options: Any) -> Tensor:
    """arange(start, end) = arange(start, end, 1)."""
    return aten.arange.start_step(start, end, 1, **options)
