"""Operators of backward graphs, and training's batch norm, computed by simpler ones while tracing.

As in `decompositions`: functions take the operator's own arguments, and give NotImplemented to
leave a call as it is (it then runs as eager does). Sums over half types are taken in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.aot.decompositions import HALF_TYPES, rounded, widened
from fusewright.fake_rules.geometry import has_memory_format

aten = torch.ops.aten


def _as_type(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype is dtype else aten._to_copy.default(x, dtype=dtype)


def _zeros(like: Tensor, size: Sequence[int]) -> Tensor:
    return aten.full.default(list(size), 0, dtype=like.dtype, device=like.device)


def _sum(x: Tensor, dims: Sequence[int], keep: bool = True) -> Tensor:
    return aten.sum.dim_IntList(x, list(dims), keep) if dims else x


def _is_computed(*tensors: Tensor | None) -> bool:
    """Whether all are of real floating point types, with elements."""
    return all(one is None or (one.dtype.is_floating_point and one.numel() > 0) for one in tensors)


# -- normalisations -------------------------------------------------------------------------------


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
    if not _is_computed(gradient, x, weight) or not normalized_shape:
        return NotImplemented
    outer = x.dim() - len(normalized_shape)
    inner_dims, outer_dims = list(range(outer, x.dim())), list(range(outer))
    g = widened(gradient)
    normal = aten.mul.Tensor(aten.sub.Tensor(widened(x), mean), inverse)
    dx = dw = db = None
    if mask[0]:
        scaled = g if weight is None else aten.mul.Tensor(g, weight)
        dx = _centred_gradient(scaled, normal, inverse, inner_dims, math.prod(normalized_shape))
        dx = rounded(dx, x)
    if mask[1] and weight is not None:
        dw = _as_type(_sum(aten.mul.Tensor(g, normal), outer_dims, False), weight.dtype)
    if mask[2] and bias is not None:
        db = _as_type(_sum(g, outer_dims, False), bias.dtype)
    return dx, dw, db


def _centred_gradient(
    g: Tensor, normal: Tensor, inverse: Tensor, dims: Sequence[int], count: int
) -> Tensor:
    """The gradient of x where normal = (x - mean) * inverse, taken over `dims`."""
    share = 1 / count if type(count) is not int or count else math.inf
    mean = aten.mul.Tensor(_sum(g, dims), share)
    slope = aten.mul.Tensor(_sum(aten.mul.Tensor(g, normal), dims), share)
    rest = aten.sub.Tensor(aten.sub.Tensor(g, mean), aten.mul.Tensor(normal, slope))
    return aten.mul.Tensor(rest, inverse)


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
    """`native_layer_norm_backward` over each group of channels."""
    if not _is_computed(gradient, x, weight):
        return NotImplemented
    shape = [batch, groups, channels // groups, pixels]
    g = aten.reshape.default(widened(gradient), shape)
    inverse = aten.view.default(widened(inverse), [batch, groups, 1, 1])
    mean = aten.view.default(widened(mean), [batch, groups, 1, 1])
    normal = aten.mul.Tensor(
        aten.sub.Tensor(aten.reshape.default(widened(x), shape), mean), inverse
    )
    dx = dw = db = None
    if mask[0]:
        scaled = g
        if weight is not None:
            by_channel = aten.view.default(widened(weight), [1, groups, channels // groups, 1])
            scaled = aten.mul.Tensor(g, by_channel)
        count = channels // groups * pixels
        dx = _centred_gradient(scaled, normal, inverse, (2, 3), count)
        dx = rounded(aten.reshape.default(dx, list(x.shape)), x)
    if mask[1]:
        dw = aten.view.default(_sum(aten.mul.Tensor(g, normal), (0, 3)), [channels])
        dw = rounded(dw, x)
    if mask[2]:
        db = rounded(aten.view.default(_sum(g, (0, 3)), [channels]), x)
    return dx, dw, db


def fused_rms_norm_backward(
    gradient: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    inverse: Tensor,
    weight: Tensor | None,
    mask: Sequence[bool],
) -> Any:
    """Gradients with n = x / root: dx = (g w - n mean(g w n)) / root, dw = sum(g n)."""
    if not _is_computed(gradient, x, weight):
        return NotImplemented
    outer = x.dim() - len(normalized_shape)
    dims = list(range(outer, x.dim()))
    g = widened(gradient)
    normal = aten.mul.Tensor(widened(x), inverse)
    dx = dw = None
    if mask[0]:
        scaled = g if weight is None else aten.mul.Tensor(g, weight)
        products = _sum(aten.mul.Tensor(scaled, normal), dims)
        slope = aten.mul.Tensor(products, 1 / math.prod(normalized_shape))
        rest = aten.sub.Tensor(scaled, aten.mul.Tensor(normal, slope))
        dx = rounded(aten.mul.Tensor(rest, inverse), x)
    if mask[1] and weight is not None:
        dw = _sum(aten.mul.Tensor(g, normal), list(range(outer)), False)
        dw = _as_type(dw, weight.dtype)
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
) -> Any:
    """(result, mean, 1 / deviation) by the statistics of this batch, which the running ones are
    moved towards (written to as a visible effect).
    """
    if not _is_computed(x, weight, bias) or x.dim() < 2:
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
        aten.view.default(one, [x.shape[1]]) for one in (mean, variance, inverse)
    )
    unbiased = aten.mul.Tensor(variance, count / max(count - 1, 1))
    for running, value in ((running_mean, mean), (running_var, unbiased)):
        if running is not None:
            kept = aten.mul.Tensor(widened(running), 1 - momentum)
            moved = aten.add.Tensor(kept, aten.mul.Tensor(value, momentum))
            aten.copy_.default(running, rounded(moved, running))
    parameters = (weight, bias, running_mean, running_var)
    is_mixed = any(one is not None and one.dtype == torch.float32 for one in parameters)
    if not is_mixed and x.device.type == "cpu":  # as eager saves them
        mean, inverse = rounded(mean, x), rounded(inverse, x)
    if not has_memory_format(x):  # eager's result is row-major then
        result = aten.clone.default(result, memory_format=torch.contiguous_format)
    return rounded(result, x), mean, inverse


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
    found = batch_norm_training(x, weight, bias, running_mean, running_var, momentum, eps)
    if found is NotImplemented:
        return NotImplemented
    return (*found, aten.new_empty.default(x, [0], dtype=torch.uint8))


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
    if not _is_computed(gradient, x, weight) or x.dim() < 2:
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
    total, products = _sum(g, dims), _sum(aten.mul.Tensor(g, normal), dims)
    dx = dw = db = None
    if mask[0]:
        if train:
            g = aten.sub.Tensor(g, aten.mul.Tensor(total, 1 / count))
            g = aten.sub.Tensor(g, aten.mul.Tensor(normal, aten.mul.Tensor(products, 1 / count)))
        factor = by_inverse
        if weight is not None:
            factor = aten.mul.Tensor(factor, _by_channel(weight, x))
        dx = rounded(aten.mul.Tensor(g, factor), x)
    like = x if weight is None else weight
    if mask[1]:
        dw = _as_type(aten.view.default(products, [x.shape[1]]), like.dtype)
    if mask[2]:
        db = _as_type(aten.view.default(total, [x.shape[1]]), like.dtype)
    return dx, dw, db


# -- what is saved ------------------------------------------------------------------------------


def bernoulli(x: Tensor, probability: float, generator: Any = None) -> Any:
    """The draw by way of truth values, which take a quarter of the memory to save."""
    if generator is not None or not x.dtype.is_floating_point:
        return NotImplemented
    kept = aten.ne.Scalar(aten.bernoulli.p(x, probability), 0)
    return aten._to_copy.default(kept, dtype=x.dtype)


def _pair(value: Sequence[int], default: Sequence[int] = ()) -> tuple[int, int]:
    first, *rest = value or default
    return first, (rest[0] if rest else first)


def max_pool2d_with_indices(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """The indices by way of places in the window, bytes instead of 64-bit integers to save."""
    (height, width), (down, right), (top, left) = (
        _pair(kernel),
        _pair(stride, kernel),
        _pair(padding),
    )
    if height * width > 127 or width > x.shape[-1] or _pair(dilation) != (1, 1) or x.numel() == 0:
        return NotImplemented
    values, indices = aten.max_pool2d_with_indices.default(
        x, kernel, stride, padding, dilation, ceil_mode
    )
    extent = x.shape[-1]
    rows, columns = values.shape[-2:]
    device = x.device
    row = aten.arange.start_step(-top, rows * down - top, down, device=device)
    origin = aten.mul.Tensor(aten.unsqueeze.default(row, 1), extent)
    column = aten.arange.start_step(-left, columns * right - left, right, device=device)
    origin = aten.add.Tensor(origin, column)  # where each window begins
    apart = aten.sub.Tensor(indices, origin)
    # A window of at most `width` columns: apart = row * extent + column, 0 <= column < width, and
    # the window's part outside the image is never the maximum.
    down_by = aten.div.Tensor_mode(apart, extent, rounding_mode="floor")
    across = aten.sub.Tensor(apart, aten.mul.Tensor(down_by, extent))
    place = aten.add.Tensor(aten.mul.Tensor(down_by, width), across)
    byte = aten._to_copy.default(place, dtype=torch.int8)
    wide = aten._to_copy.default(byte, dtype=torch.int64)
    down_by = aten.div.Tensor_mode(wide, width, rounding_mode="floor")
    across = aten.sub.Tensor(wide, aten.mul.Tensor(down_by, width))
    apart = aten.add.Tensor(aten.mul.Tensor(down_by, extent), across)
    return values, aten.add.Tensor(apart, origin)


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
        zero = aten.full.default([], 0, dtype=x.dtype, device=x.device)
        image = aten.expand.default(zero, list(x.shape))
    elif x.is_contiguous(memory_format=torch.channels_last):
        order = [0, 2, 3, 1]
        image = aten.empty_permuted.default(list(x.shape), order, dtype=x.dtype, device=x.device)
    else:
        return NotImplemented
    return aten.max_pool2d_with_indices_backward.default(
        gradient, image, kernel, stride, padding, dilation, ceil_mode, indices
    )


def outer_product(x: Tensor, y: Tensor) -> Any:
    """A product of matrices that sums nothing: what reads it computes it again, in place of saving
    it.
    """
    if x.shape[-1] != 1 or not (x.is_contiguous() and y.is_contiguous()):
        return NotImplemented
    return aten.mul.Tensor(x, y)


# -- views ----------------------------------------------------------------------------------------


def slice_backward(
    gradient: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Tensor:
    """The gradient of a slice, among zeros."""
    zeros = _zeros(gradient, sizes)
    return aten.slice_scatter.default(zeros, gradient, dim, start, end, step)  # type: ignore[no-any-return]


def select_backward(gradient: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    """The gradient of one row, among zeros."""
    zeros = _zeros(gradient, sizes)
    return aten.select_scatter.default(zeros, gradient, dim, index)  # type: ignore[no-any-return]


def diagonal_backward(
    gradient: Tensor, sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> Tensor:
    """The gradient of a diagonal, among zeros."""
    zeros = _zeros(gradient, sizes)
    return aten.diagonal_scatter.default(zeros, gradient, offset, dim1, dim2)  # type: ignore[no-any-return]


# -- losses ---------------------------------------------------------------------------------------


def _mean_factor(reduction: int, x: Tensor) -> float:
    """What each element counts in a loss."""
    return 1 / x.numel() if reduction == 1 else 1.0


def mse_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """2 (x - t) g, of the mean's share."""
    if not _is_computed(x, target) or x.dtype in HALF_TYPES:
        return NotImplemented
    difference = aten.sub.Tensor(x, target)
    scaled = aten.mul.Tensor(difference, 2 * _mean_factor(reduction, x))
    return aten.mul.Tensor(scaled, gradient)  # type: ignore[no-any-return]


def nll_loss_backward(
    gradient: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """-g w / total at the target's class, else 0: told by comparing each position with the target,
    which fuses with what follows, and scatters nothing.
    """
    if x.dim() not in (1, 2) or x.dtype in HALF_TYPES or target.dim() != x.dim() - 1:
        return NotImplemented
    share = aten.div.Tensor(gradient, total_weight) if reduction == 1 else gradient
    share = aten.neg.default(share)
    row = aten.unsqueeze.default(target, -1)
    classes = aten.arange.start_step(0, x.shape[-1], 1, device=x.device)
    hit = aten.logical_and.default(aten.eq.Tensor(classes, row), aten.ne.Scalar(row, ignore_index))
    if weight is not None:
        share = aten.mul.Tensor(share if share.dim() == 0 else _column(share), weight)
    elif share.dim() > 0:
        share = _column(share)
    zero = aten.full.default([], 0.0, dtype=x.dtype, device=x.device)
    return aten.where.self(hit, share, zero)  # type: ignore[no-any-return]


def _column(x: Tensor) -> Tensor:
    return aten.unsqueeze.default(x, -1)


# -- picked rows ----------------------------------------------------------------------------------


def embedding_dense_backward(
    gradient: Tensor, indices: Tensor, count: int, padding_index: int, scale_by_frequency: bool
) -> Any:
    """Each row added to zeros at its index, but for those of the padding. On a GPU eager adds in
    order, and half types in float32.
    """
    if scale_by_frequency or not _is_computed(gradient) or indices.numel() == 0:
        return NotImplemented
    if gradient.device.type != "cpu":
        return NotImplemented
    if padding_index >= 0:
        is_padding = _column(aten.eq.Scalar(indices, padding_index))
        zero = aten.full.default([], 0, dtype=gradient.dtype, device=gradient.device)
        gradient = aten.where.self(is_padding, zero, gradient)
    table = _zeros(gradient, [count, gradient.shape[-1]])
    return aten.index_put.default(table, [indices], gradient, True)


# -- pointwise ------------------------------------------------------------------------------------


def native_dropout_backward(gradient: Tensor, mask: Tensor, scale: float) -> Tensor:
    """g mask scale."""
    kept = aten.mul.Tensor(gradient, _as_type(mask, gradient.dtype))
    return aten.mul.Tensor(kept, scale)  # type: ignore[no-any-return]


def threshold_backward(gradient: Tensor, x: Tensor, threshold: float) -> Tensor:
    """0 where x <= threshold, else g: where x itself is not kept, truth values are."""
    zero = aten.full.default([], 0, dtype=gradient.dtype, device=gradient.device)
    return aten.where.self(aten.le.Scalar(x, threshold), zero, gradient)  # type: ignore[no-any-return]


def leaky_relu_backward(gradient: Tensor, x: Tensor, slope: float, is_result: bool) -> Tensor:
    """g where x > 0, else slope g."""
    below = aten.mul.Tensor(gradient, slope)
    return aten.where.self(aten.gt.Scalar(x, 0), gradient, below)  # type: ignore[no-any-return]


def hardtanh_backward(gradient: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    """g strictly between the bounds, else 0, as for NaN."""
    inside = aten.logical_and.default(aten.gt.Scalar(x, low), aten.lt.Scalar(x, high))
    zero = aten.full.default([], 0, dtype=gradient.dtype, device=gradient.device)
    return aten.where.self(inside, gradient, zero)  # type: ignore[no-any-return]


def elu_backward(
    gradient: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Tensor:
    """scale g where x > 0, else g input_scale (result + scale alpha)."""
    if x.dtype in HALF_TYPES:
        return NotImplemented
    if is_result:
        inner = aten.mul.Tensor(aten.add.Tensor(x, alpha * scale), input_scale)
    else:
        power = aten.exp.default(aten.mul.Tensor(x, input_scale))
        inner = aten.mul.Tensor(power, input_scale * alpha * scale)
    below = aten.mul.Tensor(gradient, inner)
    above = aten.mul.Tensor(gradient, scale)
    return aten.where.self(aten.gt.Scalar(x, 0), above, below)  # type: ignore[no-any-return]


def softplus_backward(gradient: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    """g sigmoid(beta x); g where beta x is above the threshold."""
    if x.dtype in HALF_TYPES:
        return NotImplemented
    scaled = aten.mul.Tensor(x, beta)
    slope = aten.mul.Tensor(gradient, aten.sigmoid.default(scaled))
    return aten.where.self(aten.gt.Scalar(scaled, threshold), gradient, slope)  # type: ignore[no-any-return]


def log_sigmoid_backward(gradient: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """g sigmoid(-x), for every type: the forward by `log_sigmoid_forward` leaves no buffer."""
    slope = aten.sigmoid.default(aten.neg.default(widened(x)))
    return rounded(aten.mul.Tensor(widened(gradient), slope), x)


GRADIENT_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm_backward.default: native_layer_norm_backward,
    aten.native_group_norm_backward.default: native_group_norm_backward,
    aten._fused_rms_norm_backward.default: fused_rms_norm_backward,
    aten.native_batch_norm.default: native_batch_norm,
    aten.cudnn_batch_norm.default: cudnn_batch_norm,
    aten.cudnn_batch_norm_backward.default: cudnn_batch_norm_backward,
    aten._native_batch_norm_legit.default: native_batch_norm_legit,
    aten._native_batch_norm_legit.no_stats: native_batch_norm_legit_no_stats,
    aten.native_batch_norm_backward.default: native_batch_norm_backward,
    aten.bernoulli.p: bernoulli,
    aten.max_pool2d_with_indices.default: max_pool2d_with_indices,
    aten.max_pool2d_with_indices_backward.default: max_pool2d_with_indices_backward,
    aten.mm.default: outer_product,
    aten.bmm.default: outer_product,
    aten.embedding_dense_backward.default: embedding_dense_backward,
    aten.slice_backward.default: slice_backward,
    aten.select_backward.default: select_backward,
    aten.diagonal_backward.default: diagonal_backward,
    aten.mse_loss_backward.default: mse_loss_backward,
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.native_dropout_backward.default: native_dropout_backward,
    aten.threshold_backward.default: threshold_backward,
    aten.leaky_relu_backward.default: leaky_relu_backward,
    aten.hardtanh_backward.default: hardtanh_backward,
    aten.elu_backward.default: elu_backward,
    aten.softplus_backward.default: softplus_backward,
    aten.log_sigmoid_backward.default: log_sigmoid_backward,
}
"""By operator."""
