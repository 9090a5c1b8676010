"""Geometry of reductions, softmax and normalisations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import (
    Geometry,
    Rule,
    channels_last,
    contiguous,
    copied_row_major,
    has_memory_format,
    is_channels_last,
    named,
    require,
    same_sizes,
    suggests_channels_last,
)

MOST_DIMENSIONS = 64
"""The number of dimensions that a tensor reduced by torch may have."""


def _has_dimension(x: Tensor, dim: int) -> bool:
    """Whether `dim` names a dimension; one without any has one to name."""
    rank = max(x.dim(), 1)
    return -rank <= dim < rank


def _reduced_size(x: Tensor, dims: Any, keepdim: bool) -> tuple[int, ...] | None:
    if isinstance(dims, int):
        dims = (dims,)
    rank = x.dim()
    if rank > MOST_DIMENSIONS:
        return None
    if not dims:
        dims = range(rank)
    elif rank == 0 or not all(-rank <= dim < rank for dim in dims):
        return None
    chosen = {dim % rank for dim in dims}
    if len(chosen) != len(dims):
        return None
    if keepdim:
        return tuple(1 if dim in chosen else extent for dim, extent in enumerate(x.shape))
    return tuple(extent for dim, extent in enumerate(x.shape) if dim not in chosen)


def mean(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Geometry | None:
    """mean over dimensions of a floating tensor."""
    size = _reduced_size(x, dim, keepdim)
    result = dtype or x.dtype
    return None if size is None or not result.is_floating_point else contiguous(result, size)


def total(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Geometry | None:
    """sum over dimensions: integers and bool are summed in int64."""
    size = _reduced_size(x, dim, keepdim)
    if size is None or x.dtype.is_complex:
        return None
    natural = x.dtype if x.dtype.is_floating_point else torch.int64
    return contiguous(dtype or natural, size)


def _extents(x: Tensor, dims: Any) -> list[Any]:
    """The sizes of the dimensions `dims` that there are; of all where `dims` names none."""
    if isinstance(dims, int):
        dims = (dims,)
    rank = x.dim()
    return [x.shape[dim] for dim in dims or range(rank) if -rank <= dim < rank]


def has_elements(x: Tensor, dims: Any = None) -> bool:
    """Whether there is something to choose along each of the dimensions `dims`, or in all."""
    for extent in _extents(x, dims):
        require(extent >= 1)
    return x.numel() != 0


def extreme(x: Tensor, dim: Any = (), keepdim: bool = False) -> Geometry | None:
    """amax, amin; empty reductions are left to torch, which refuses them."""
    size = _reduced_size(x, dim, keepdim)
    return None if size is None or not has_elements(x, dim) else contiguous(x.dtype, size)


def truth(x: Tensor, dim: Any = None, keepdim: bool = False) -> Geometry | None:
    """any, all: bool; uint8 is left to torch."""
    size = _reduced_size(x, dim, keepdim)
    return None if size is None or x.dtype is torch.uint8 else contiguous(torch.bool, size)


def position(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Geometry | None:
    """argmax, argmin: int64 indices; empty ones and bool are left to torch, which refuses them."""
    size = _reduced_size(x, dim, keepdim)
    if size is None or x.dtype is torch.bool or not has_elements(x, dim):
        return None
    return contiguous(torch.int64, size)


def extreme_with_position(
    x: Tensor, dim: int, keepdim: bool = False
) -> tuple[Geometry, Geometry] | None:
    """max.dim, min.dim: values and their int64 indices."""
    size = _reduced_size(x, dim, keepdim)
    if size is None or not has_elements(x, dim):
        return None
    return contiguous(x.dtype, size), contiguous(torch.int64, size)


def variance(
    x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Geometry | None:
    """var, std of floating tensors."""
    size = _reduced_size(x, dim, keepdim)
    return None if size is None or not x.dtype.is_floating_point else contiguous(x.dtype, size)


def vector_norm(
    x: Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Geometry | None:
    """linalg_vector_norm of floating tensors that have elements along its dimensions, or by an
    order that nothing has a norm of as well.
    """
    if dtype is not None or not x.dtype.is_floating_point or not isinstance(order, int | float):
        return None
    size = _reduced_size(x, dim, keepdim)
    if size is None:
        return None
    is_defined = 0 <= order < math.inf or x.numel() > 0 or 0 not in _extents(x, dim)
    return contiguous(x.dtype, size) if is_defined else None


def loss_of_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Geometry | None:
    """binary_cross_entropy_with_logits as a number, of the target's type: eager writes to one minus
    the target.
    """
    if reduction == 0 or not (x.dtype.is_floating_point and target.dtype.is_floating_point):
        return None
    return contiguous(target.dtype, ()) if x.shape == target.shape else None


def running(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Geometry | None:
    """cumsum, cumprod: integers are accumulated in int64."""
    if not _has_dimension(x, dim):
        return None
    natural = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64
    return contiguous(dtype or natural, x.shape)


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Geometry | None:
    """_softmax, _log_softmax without a change of type: contiguous for every layout."""
    if half_to_float or not x.dtype.is_floating_point or not _has_dimension(x, dim):
        return None
    return contiguous(x.dtype, x.shape)


def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Geometry | None:
    """_safe_softmax of a contiguous tensor, without a change of type."""
    if dtype is not None or not x.dtype.is_floating_point or not -x.dim() <= dim < x.dim():
        return None
    return copied_row_major(x)


def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int
) -> tuple[Geometry, Geometry] | None:
    """nll_loss_forward of rows of classes: the loss, and the sum of the weights."""
    if x.dim() != 2 or not x.dtype.is_floating_point or target.dtype != torch.int64:
        return None
    if weight is not None or not same_sizes(target.shape, x.shape[:1]):
        return None
    return contiguous(x.dtype, () if reduction else x.shape[:1]), contiguous(x.dtype, ())


def _is_left_to_torch(x: Tensor) -> bool:
    """Whether a normalisation is not one of floating numbers on the CPU."""
    return x.device.type != "cpu" or not x.dtype.is_floating_point


def layer_norm(
    x: Tensor, normalized: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Geometry, ...] | None:
    """native_layer_norm on the CPU: (output, mean, reciprocal deviation), contiguous."""
    axis = x.dim() - len(normalized)
    parameters = [p for p in (weight, bias) if p is not None]
    if _is_left_to_torch(x) or axis < 0 or not normalized:
        return None
    if tuple(x.shape[axis:]) != tuple(normalized):
        return None
    if any(p.dtype != x.dtype or tuple(p.shape) != tuple(normalized) for p in parameters):
        return None
    statistics = contiguous(x.dtype, (*x.shape[:axis], *(1 for _ in normalized)))
    return contiguous(x.dtype, x.shape), statistics, statistics


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Geometry, ...] | None:
    """_native_batch_norm_legit_no_training on the CPU: the saved statistics are empty."""
    if _is_left_to_torch(x):
        return None
    statistics = {p.dtype for p in (weight, bias, mean, variance) if p is not None} or {x.dtype}
    if statistics != {x.dtype} and statistics != {torch.float32}:
        return None
    size, empty = tuple(x.shape), contiguous(statistics.pop(), (0,))
    result = Geometry(x.dtype, size, x.stride())
    return result if has_memory_format(x) else contiguous(x.dtype, size), empty, empty


def native_batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Geometry, ...] | None:
    """native_batch_norm: (output, mean, reciprocal standard deviation); the last two are empty in
    inference.
    """
    results = batch_norm(x, weight, bias, mean, variance, momentum, eps)
    if not training or results is None:
        return results
    if results[1].dtype != x.dtype or x.dim() < 2:
        return None
    statistics = contiguous(x.dtype, (x.shape[1],))
    return results[0], statistics, statistics


def batch_norm_with_update(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Geometry, ...] | None:
    """_batch_norm_with_update_functional: (output, mean, reciprocal standard deviation, an empty
    reserve, running mean, running variance). All statistics have the type of the given ones, the
    saved ones of half types on a GPU float32; torch's meta kernel says that of x for the former and
    float32 for the latter.
    """
    if x.dim() < 2:
        return None
    moved = contiguous(mean.dtype, (x.shape[1],))
    reserve = contiguous(torch.uint8, (0,))
    if x.device.type == "cpu":
        results = batch_norm(x, weight, bias, mean, variance, momentum, eps)
        if results is None:
            return None
        result, saved = results[0], moved
    elif x.is_contiguous() or is_channels_last(x):
        lays_out = contiguous if x.is_contiguous() else channels_last
        saved_type = x.dtype if x.dtype is torch.float64 else torch.float32
        result, saved = lays_out(x.dtype, x.shape), contiguous(saved_type, (x.shape[1],))
    else:
        return None
    return result, saved, saved, reserve, moved, moved


def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    c: int,
    spatial: int,
    groups: int,
    eps: float,
) -> tuple[Geometry, ...] | None:
    """native_group_norm of a contiguous tensor, or of one with its channels last, which it keeps
    them: (output, mean, reciprocal standard deviation).
    """
    lays_out = channels_last if suggests_channels_last(x) else contiguous
    if _is_left_to_torch(x) or not (x.is_contiguous() or is_channels_last(x)):
        return None
    if any(p is not None and p.dtype != x.dtype for p in (weight, bias)) or c % groups:
        return None
    statistics = contiguous(x.dtype, (n, groups))
    return lays_out(x.dtype, x.shape), statistics, statistics


RULES: dict[Any, Rule] = {
    **named(mean, "mean.dim mean"),
    **named(total, "sum.dim_IntList sum"),
    **named(extreme, "amax amin"),
    **named(truth, "any any.dim any.dims all all.dim all.dims"),
    **named(position, "argmax argmin"),
    **named(extreme_with_position, "max.dim min.dim"),
    **named(variance, "var.correction std.correction"),
    **named(vector_norm, "linalg_vector_norm"),
    **named(loss_of_logits, "binary_cross_entropy_with_logits"),
    **named(running, "cumsum cumprod"),
    **named(softmax, "_softmax _log_softmax"),
    **named(safe_softmax, "_safe_softmax"),
    **named(nll_loss, "nll_loss_forward"),
    **named(layer_norm, "native_layer_norm"),
    **named(batch_norm, "_native_batch_norm_legit_no_training"),
    **named(native_batch_norm, "native_batch_norm"),
    **named(batch_norm_with_update, "_batch_norm_with_update_functional"),
    **named(group_norm, "native_group_norm"),
}
