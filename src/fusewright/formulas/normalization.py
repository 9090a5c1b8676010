"""Normalisation by statistics: batch norm in training, and gradients of all norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import has_memory_format
from fusewright.formulas.helpers import (
    as_type,
    aten,
    is_computed,
    rounded,
    share_of,
    sum_over,
    widened,
)
from fusewright.formulas.table import formula


@formula(aten.native_layer_norm_backward.default)
def native_layer_norm_backward(
    gradient: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> Any:
    """Gradients over the last dimensions, with n = (x - mean) / deviation:
    dx = (g w - mean(g w) - n mean(g w n)) / deviation, dw = sum(g n), db = sum(g).
    """
    if not is_computed(gradient, x, weight) or not normalized_shape:
        return NotImplemented
    outer = x.dim() - len(normalized_shape)
    inner_dims, outer_dims = list(range(outer, x.dim())), list(range(outer))
    g, mean, inverse = widened(gradient), widened(mean), widened(inverse)
    normal = aten.mul.Tensor(aten.sub.Tensor(widened(x), mean), inverse)
    dx = dw = db = None
    if mask[0]:
        scaled = g if weight is None else aten.mul.Tensor(g, weight)
        dx = _centred_gradient(scaled, normal, inverse, inner_dims, math.prod(normalized_shape))
        dx = rounded(dx, x)
    if mask[1] and weight is not None:
        dw = as_type(sum_over(aten.mul.Tensor(g, normal), outer_dims, False), weight.dtype)
    if mask[2] and bias is not None:
        db = as_type(sum_over(g, outer_dims, False), bias.dtype)
    return dx, dw, db


def _centred_gradient(
    g: Tensor, normal: Tensor, inverse: Tensor, dims: Sequence[int], count: int
) -> Tensor:
    """The gradient of x where normal = (x - mean) * inverse, taken over `dims`."""
    products = sum_over(aten.mul.Tensor(g, normal), dims)
    return _centred_by_sums(g, normal, inverse, sum_over(g, dims), products, count)


def _centred_by_sums(
    g: Tensor, normal: Tensor, inverse: Tensor, total: Tensor, products: Tensor, count: int
) -> Tensor:
    """The same, from the sums of g and of g * normal, of so many elements each."""
    share = share_of(count)
    mean = aten.mul.Tensor(total, share)
    slope = aten.mul.Tensor(products, share)
    rest = aten.sub.Tensor(aten.sub.Tensor(g, mean), aten.mul.Tensor(normal, slope))
    return aten.mul.Tensor(rest, inverse)


@formula(aten.native_group_norm_backward.default)
def native_group_norm_backward(
    gradient: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    mask: Sequence[bool],
) -> Any:
    """`native_layer_norm_backward` over each group of channels. Everything comes from two sums of
    each image's channels: of g, and of g * normal.
    """
    if not is_computed(gradient, x, weight):
        return NotImplemented
    shape = [batch, groups, channels // groups, pixels]
    g = aten.reshape.default(widened(gradient), shape)
    inverse = aten.view.default(widened(inverse), [batch, groups, 1, 1])
    mean = aten.view.default(widened(mean), [batch, groups, 1, 1])
    normal = aten.mul.Tensor(
        aten.sub.Tensor(aten.reshape.default(widened(x), shape), mean), inverse
    )
    total, products = sum_over(g, (3,)), sum_over(aten.mul.Tensor(g, normal), (3,))
    dx = dw = db = None
    if mask[0]:
        scaled, totals, of_products = g, total, products
        if weight is not None:
            by_channel = aten.view.default(widened(weight), [1, groups, channels // groups, 1])
            scaled, totals, of_products = (
                aten.mul.Tensor(one, by_channel) for one in (g, total, products)
            )
        totals, of_products = sum_over(totals, (2,)), sum_over(of_products, (2,))
        count = channels // groups * pixels
        dx = _centred_by_sums(scaled, normal, inverse, totals, of_products, count)
        dx = rounded(aten.reshape.default(dx, list(x.shape)), x)
    if mask[1]:
        dw = rounded(aten.view.default(sum_over(products, (0,)), [channels]), x)
    if mask[2]:
        db = rounded(aten.view.default(sum_over(total, (0,)), [channels]), x)
    return dx, dw, db


@formula(aten._fused_rms_norm_backward.default)
def fused_rms_norm_backward(
    gradient: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    inverse: Tensor,
    weight: Tensor | None,
    mask: Sequence[bool],
) -> Any:
    """Gradients with n = x / root: dx = (g w - n mean(g w n)) / root, dw = sum(g n)."""
    if not is_computed(gradient, x, weight):
        return NotImplemented
    outer = x.dim() - len(normalized_shape)
    dims = list(range(outer, x.dim()))
    g = widened(gradient)
    normal = aten.mul.Tensor(widened(x), inverse)
    dx = dw = None
    if mask[0]:
        scaled = g if weight is None else aten.mul.Tensor(g, weight)
        products = sum_over(aten.mul.Tensor(scaled, normal), dims)
        slope = aten.mul.Tensor(products, share_of(math.prod(normalized_shape)))
        rest = aten.sub.Tensor(scaled, aten.mul.Tensor(normal, slope))
        dx = rounded(aten.mul.Tensor(rest, inverse), x)
    if mask[1] and weight is not None:
        dw = sum_over(aten.mul.Tensor(g, normal), list(range(outer)), False)
        dw = as_type(dw, weight.dtype)
    return dx, dw


def _by_channel(value: Tensor | None, x: Tensor) -> Any:
    """A vector over channels, to be broadcast over `x`, in the type that `x` is computed in."""
    if value is None:
        return None
    return aten.view.default(widened(value), [1, value.shape[0], *[1] * (x.dim() - 2)])


def batch_norm_training(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    *,
    by_cudnn: bool = False,
) -> Any:
    """(result, mean, 1 / deviation) by the statistics of this batch, which the running ones are
    moved towards (written to as a visible effect). The result is row-major where `x` has no memory
    format; torch's own kernels for GPUs, where cudnn does not take the call, let it lie as `x`.
    """
    if not is_computed(x, weight, bias) or x.dim() < 2:
        return NotImplemented
    count = x.numel() // x.shape[1]
    dims = [0, *range(2, x.dim())]
    wide = widened(x)
    mean = aten.mean.dim(wide, dims, True)
    centred = aten.sub.Tensor(wide, mean)
    # Not `var_mean`, which goes to more trouble than is seen beside the epsilon.
    variance = aten.mean.dim(aten.mul.Tensor(centred, centred), dims, True)
    inverse = aten.rsqrt.default(aten.add.Tensor(variance, eps))
    result = aten.mul.Tensor(centred, inverse)
    if weight is not None:
        result = aten.mul.Tensor(result, _by_channel(weight, x))
    if bias is not None:
        result = aten.add.Tensor(result, _by_channel(bias, x))
    mean, variance, inverse = (
        aten.view.default(statistic, [x.shape[1]]) for statistic in (mean, variance, inverse)
    )
    unbiased = aten.mul.Tensor(variance, count / max(count - 1, 1))
    for running, value in ((running_mean, mean), (running_var, unbiased)):
        if running is not None:
            kept = aten.mul.Tensor(widened(running), 1 - momentum)
            moved = aten.add.Tensor(kept, aten.mul.Tensor(value, momentum))
            aten.copy_.default(running, rounded(moved, running))
    parameters = (weight, bias, running_mean, running_var)
    is_mixed = any(
        parameter is not None and parameter.dtype == torch.float32 for parameter in parameters
    )
    if not is_mixed and x.device.type == "cpu":  # as eager saves them
        mean, inverse = rounded(mean, x), rounded(inverse, x)
    if not has_memory_format(x) and (by_cudnn or x.device.type == "cpu"):
        result = aten.clone.default(result, memory_format=torch.contiguous_format)
    return rounded(result, x), mean, inverse


@formula(aten.native_batch_norm.default)
def native_batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Training batch norm updates its running statistics behind the schema's back: here the writes
    are seen. By fixed statistics it is an operator of its own, computed element by element.
    """
    if not training:
        if running_mean is None or running_var is None:
            return NotImplemented
        fixed = aten._native_batch_norm_legit_no_training.default
        return fixed(x, weight, bias, running_mean, running_var, momentum, eps)
    return batch_norm_training(x, weight, bias, running_mean, running_var, momentum, eps)


@formula(aten.cudnn_batch_norm.default)
def cudnn_batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Batch norm as in `native_batch_norm`; what cudnn keeps for its backward beside the statistics
    is empty.
    """
    if not training:
        return NotImplemented
    statistics = (running_mean, running_var, momentum, eps)
    results = batch_norm_training(x, weight, bias, *statistics, by_cudnn=True)
    if results is NotImplemented:
        return NotImplemented
    return (*results, aten.new_empty.default(x, [0], dtype=torch.uint8))


@formula(aten.cudnn_batch_norm_backward.default)
def cudnn_batch_norm_backward(
    x: Tensor,
    gradient: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    inverse: Tensor | None,
    eps: float,
    reserve: Tensor,
) -> Any:
    """`native_batch_norm_backward` of training, where cudnn computed the batch norm."""
    every = (True, True, True)
    return native_batch_norm_backward(
        gradient, x, weight, running_mean, running_var, mean, inverse, True, eps, every
    )


@formula(aten._native_batch_norm_legit.default)
def native_batch_norm_legit(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """`native_batch_norm` under its honest name."""
    arguments = (x, weight, bias, running_mean, running_var, training, momentum, eps)
    if training:
        return native_batch_norm(*arguments)
    return aten.native_batch_norm.default(*arguments)


@formula(aten._native_batch_norm_legit.no_stats)
def native_batch_norm_legit_no_stats(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Batch norm that keeps no running statistics."""
    return batch_norm_training(x, weight, bias, None, None, momentum, eps)


@formula(aten.native_batch_norm_backward.default)
def native_batch_norm_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    inverse: Tensor | None,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> Any:
    """Gradients as in `native_layer_norm_backward`, over all dimensions but the channels; outside
    training, with fixed statistics.
    """
    if not is_computed(gradient, x, weight) or x.dim() < 2:
        return NotImplemented
    if not train:
        if running_mean is None or running_var is None:
            return NotImplemented
        mean = running_mean
        inverse = aten.rsqrt.default(aten.add.Tensor(widened(running_var), eps))
    dims = [0, *range(2, x.dim())]
    count = x.numel() // x.shape[1]
    g, by_inverse = widened(gradient), _by_channel(inverse, x)
    normal = aten.mul.Tensor(aten.sub.Tensor(widened(x), _by_channel(mean, x)), by_inverse)
    total, products = sum_over(g, dims), sum_over(aten.mul.Tensor(g, normal), dims)
    dx = dw = db = None
    if mask[0]:
        if train:
            share = share_of(count)
            g = aten.sub.Tensor(g, aten.mul.Tensor(total, share))
            g = aten.sub.Tensor(g, aten.mul.Tensor(normal, aten.mul.Tensor(products, share)))
        factor = by_inverse
        if weight is not None:
            factor = aten.mul.Tensor(factor, _by_channel(weight, x))
        dx = rounded(aten.mul.Tensor(g, factor), x)
    like = x if weight is None else weight
    if mask[1]:
        dw = as_type(aten.view.default(products, [x.shape[1]]), like.dtype)
    if mask[2]:
        db = as_type(aten.view.default(total, [x.shape[1]]), like.dtype)
    return dx, dw, db
