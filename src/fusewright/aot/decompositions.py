"""Operators computed by simpler ones while tracing, so that lowering needs fewer rules.

Each function takes the operator's own arguments and computes the result with `torch.ops.aten`
operators, which the tracer records; it gives NotImplemented to leave a call as it is. What lowering
has rules for (pointwise operators, reductions, softmax, normalisations, indexing, views) and what
is better as a library call (products, convolution, attention, pooling) is left alone. Half types
are computed in float32 and rounded once, as eager operators do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

HALF_TYPES = (torch.float16, torch.bfloat16)


def widened(x: Tensor) -> Tensor:
    """`x` in the type in which eager computes on it: float32 for the half types."""
    return aten._to_copy.default(x, dtype=torch.float32) if x.dtype in HALF_TYPES else x


def rounded(x: Tensor, like: Tensor) -> Tensor:
    """A result computed on `widened(like)` in the type of `like`."""
    return aten._to_copy.default(x, dtype=like.dtype) if like.dtype in HALF_TYPES else x


# -- views that give several results --------------------------------------------------------------


def split(x: Tensor, split_size: int, dim: int = 0) -> list[Tensor]:
    """split(x, n) = slices of n rows, the last one shorter."""
    extent = x.shape[dim]
    if split_size == 0:
        return [aten.slice.Tensor(x, dim, 0, extent)]
    count = int((extent + split_size - 1) // split_size) if extent else 1
    starts = [split_size * number for number in range(count)]
    ends = [*starts[1:], extent]
    return [aten.slice.Tensor(x, dim, *bounds) for bounds in zip(starts, ends, strict=True)]


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


def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    """unbind(x) = select each index."""
    return [aten.select.int(x, dim, index) for index in range(x.shape[dim])]


MULTIPLE_VIEWS: dict[Any, Callable[..., Any]] = {
    aten.split.Tensor: split,
    aten.split_with_sizes.default: split_with_sizes,
    aten.unbind.int: unbind,
}
"""Taken apart whatever else is: writes are followed through views of one result."""


# -- pointwise ------------------------------------------------------------------------------------


def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """log_sigmoid(x) = min(x, 0) - log1p(exp(-|x|)), row-major; no buffer for backward."""
    wide = widened(x)
    if not wide.is_contiguous():
        wide = aten.clone.default(wide, memory_format=torch.contiguous_format)
    tail = aten.log1p.default(aten.exp.default(aten.neg.default(aten.abs.default(wide))))
    result = aten.sub.Tensor(aten.clamp_max.default(wide, 0), tail)
    return rounded(result, x), aten.new_empty.default(x, [0])


def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    """logaddexp2(x, y) = max + log2(1 + 2^-|x - y|); equal infinities stay."""
    if not x.dtype.is_floating_point or x.dtype != y.dtype:
        return NotImplemented
    wide_x, wide_y = widened(x), widened(y)
    largest = aten.maximum.default(wide_x, wide_y)
    distance = aten.neg.default(aten.abs.default(aten.sub.Tensor(wide_x, wide_y)))
    tail = aten.mul.Tensor(aten.log1p.default(aten.exp2.default(distance)), 1 / math.log(2))
    infinite = aten.logical_and.default(aten.isinf.default(wide_x), aten.eq.Tensor(wide_x, wide_y))
    return rounded(aten.where.self(infinite, wide_x, aten.add.Tensor(largest, tail)), x)


def nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """nan_to_num(x): NaN becomes 0, infinities the largest finite numbers, or what is given."""
    if x.dtype.is_complex:
        return NotImplemented
    if not x.dtype.is_floating_point:
        return aten.clone.default(x)
    limits = torch.finfo(x.dtype)
    highest = limits.max if posinf is None else posinf
    lowest = limits.min if neginf is None else neginf
    result = aten.where.self(aten.isnan.default(x), _filled(x, nan or 0.0), x)
    result = aten.where.self(aten.eq.Scalar(x, math.inf), _filled(x, highest), result)
    return aten.where.self(aten.eq.Scalar(x, -math.inf), _filled(x, lowest), result)


def to_copy(x: Tensor | complex, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """_to_copy(0.1) = a tensor of no dimensions: batching converts the number of `0.1 * x`."""
    if isinstance(x, Tensor):
        return NotImplemented
    return aten.scalar_tensor.default(x, dtype=dtype or torch.tensor(x).dtype, **options)


def _filled(like: Tensor, value: float) -> Tensor:
    return aten.full.default([], value, dtype=like.dtype, device=like.device)


def heaviside(x: Tensor, values: Tensor) -> Tensor:
    """heaviside(x, v) = v where x is 0, else 1 where x is above 0, else 0; 0 for NaN."""
    if x.dtype is torch.bool or x.dtype != values.dtype:
        return NotImplemented
    step = aten._to_copy.default(aten.gt.Scalar(x, 0), dtype=x.dtype)
    return aten.where.self(aten.eq.Scalar(x, 0), values, step)


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """logit(x) = log(x / (1 - x)), x first clamped to [eps, 1 - eps]: what is below eps is eps,
    also where these bounds cross.
    """
    if not x.dtype.is_floating_point:
        return NotImplemented
    wide = widened(x)
    if eps is not None:
        low = aten.full.default([], eps, dtype=wide.dtype, device=wide.device)
        is_low = aten.lt.Scalar(wide, eps)
        wide = aten.where.self(is_low, low, aten.clamp_max.default(wide, 1 - eps))
    rest = aten.add.Scalar(aten.neg.default(wide), 1)
    return rounded(aten.log.default(aten.div.Tensor(wide, rest)), x)


def sinc(x: Tensor) -> Tensor:
    """sinc(x) = sin(pi x) / (pi x), 1 at 0."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    wide = aten.mul.Tensor(widened(x), math.pi)
    ratio = aten.div.Tensor(aten.sin.default(wide), wide)
    return rounded(aten.where.self(aten.eq.Scalar(wide, 0), _filled(wide, 1.0), ratio), x)


def entropy(x: Tensor) -> Tensor:
    """special_entr(x) = -x log(x), 0 at 0, -inf below."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    wide = widened(x)
    inside = aten.neg.default(aten.mul.Tensor(wide, aten.log.default(wide)))
    edge = aten.where.self(aten.eq.Scalar(wide, 0), _filled(wide, 0.0), _filled(wide, -math.inf))
    above = aten.logical_or.default(aten.gt.Scalar(wide, 0), aten.isnan.default(wide))
    return rounded(aten.where.self(above, inside, edge), x)


def rrelu_with_noise(
    x: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 0.3333333333333333,
    training: bool = False,
    generator: Any = None,
) -> Tensor:
    """rrelu outside training = leaky_relu with the mean slope, row-major."""
    if training:
        return NotImplemented
    row_major = aten.clone.default(x, memory_format=torch.contiguous_format)
    return aten.leaky_relu.default(row_major, (lower + upper) / 2)


def native_dropout(x: Tensor, probability: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Dropout outside training gives its input and a mask of ones."""
    if train or train is None:
        return NotImplemented
    return aten.clone.default(x), aten.ones_like.default(x, dtype=torch.bool)


# -- reductions and losses ------------------------------------------------------------------------


def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """aminmax(x) = (amin(x), amax(x))."""
    if x.numel() == 0:
        return NotImplemented
    dims = [] if dim is None else [dim]
    return aten.amin.default(x, dims, keepdim), aten.amax.default(x, dims, keepdim)


def count_nonzero(x: Tensor, dims: Sequence[int] = ()) -> Tensor:
    """count_nonzero(x, dims) = sum(x != 0, dims)."""
    return aten.sum.dim_IntList(aten.ne.Scalar(x, 0), list(dims))


def reduce_loss(loss: Tensor, reduction: int) -> Tensor:
    """A loss an element, reduced as torch numbers it: 0 not at all, 1 mean, 2 sum."""
    match reduction:
        case 1:
            return aten.mean.default(loss)
        case 2:
            return aten.sum.default(loss)
        case _:
            return loss


def mse_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """Mean squared error."""
    if not x.dtype.is_floating_point or x.dtype != target.dtype or x.dtype in HALF_TYPES:
        return NotImplemented
    difference = aten.sub.Tensor(x, target)
    return reduce_loss(aten.mul.Tensor(difference, difference), reduction)


def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    """d²/(2 beta) where |d| < beta, else |d| - beta/2."""
    if not x.dtype.is_floating_point or x.dtype != target.dtype or x.dtype in HALF_TYPES:
        return NotImplemented
    distance = aten.abs.default(aten.sub.Tensor(x, target))
    if beta == 0:
        return reduce_loss(distance, reduction)
    near = aten.div.Tensor(aten.mul.Tensor(aten.mul.Tensor(distance, distance), 0.5), beta)
    far = aten.sub.Scalar(distance, 0.5 * beta)
    return reduce_loss(aten.where.self(aten.lt.Scalar(distance, beta), near, far), reduction)


def huber_loss(x: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    """d²/2 where |d| <= delta, else delta (|d| - delta/2)."""
    if not x.dtype.is_floating_point or x.dtype != target.dtype or x.dtype in HALF_TYPES:
        return NotImplemented
    distance = aten.abs.default(aten.sub.Tensor(x, target))
    near = aten.mul.Tensor(aten.mul.Tensor(distance, distance), 0.5)
    far = aten.mul.Tensor(aten.sub.Scalar(distance, 0.5 * delta), delta)
    return reduce_loss(aten.where.self(aten.le.Scalar(distance, delta), near, far), reduction)


def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """-(t log(x) + (1 - t) log(1 - x)), each logarithm at least -100; laid out as `x`, which
    therefore comes first in each product. On the CPU `x` is checked to lie between 0 and 1.
    """
    if x.dtype in HALF_TYPES:
        return NotImplemented
    if x.device.type == "cpu":
        inside = aten.logical_and.default(aten.ge.Scalar(x, 0), aten.le.Scalar(x, 1))
        aten._assert_async.msg(
            aten.all.default(inside), "all elements of input should be in [0, 1]"
        )
    log_x = aten.clamp_min.default(aten.log.default(x), -100)
    log_rest = aten.clamp_min.default(aten.log1p.default(aten.neg.default(x)), -100)
    negative = aten.mul.Tensor(log_rest, aten.sub.Scalar(target, 1))
    loss = aten.sub.Tensor(negative, aten.mul.Tensor(log_x, target))
    if weight is not None:
        loss = aten.mul.Tensor(loss, weight)
    return reduce_loss(loss, reduction)


def soft_margin_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """log(1 + exp(-t x))."""
    if x.dtype != target.dtype or x.dtype in HALF_TYPES:
        return NotImplemented
    product = aten.mul.Tensor(aten.neg.default(target), x)
    return reduce_loss(aten.log1p.default(aten.exp.default(product)), reduction)


def nll_loss_forward(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """-x[target], weighted by class; ignored rows count nothing. Gives (loss, total weight)."""
    if x.dim() not in (1, 2) or x.dtype in HALF_TYPES or target.dim() != x.dim() - 1:
        return NotImplemented
    ignored = aten.eq.Scalar(target, ignore_index)
    safe = aten.where.self(ignored, _filled(target, 0), target)
    picked = _picked(x, safe)
    zero = _filled(x, 0.0)
    if weight is None:
        kept = aten._to_copy.default(aten.logical_not.default(ignored), dtype=x.dtype)
        row_weight = kept
    else:
        row_weight = aten.where.self(
            ignored, zero, aten.index_select.default(weight, 0, _row(safe))
        )
        row_weight = aten.view.default(row_weight, list(target.shape))
    scaled = picked if weight is None else aten.mul.Tensor(picked, row_weight)
    loss = aten.where.self(ignored, zero, aten.neg.default(scaled))
    total = aten.sum.default(row_weight)
    match reduction:
        case 0:
            return loss, _filled(x, 0.0)
        case 2:
            return aten.sum.default(loss), total
        case _:
            return aten.div.Tensor(aten.sum.default(loss), total), total


def _row(index: Tensor) -> Tensor:
    return aten.unsqueeze.default(index, 0) if index.dim() == 0 else index


def _picked(x: Tensor, index: Tensor) -> Tensor:
    """x[i, index[i]], or x[index] for a vector."""
    if x.dim() == 1:
        return aten.squeeze.dim(aten.index_select.default(x, 0, _row(index)), 0)
    column = aten.gather.default(x, 1, aten.unsqueeze.default(index, 1))
    return aten.squeeze.dim(column, 1)


# -- indexing and layout --------------------------------------------------------------------------


def index_fill(x: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """index_fill(x, dim, index, v) = v where the position along `dim` is in `index`; negative
    indices count from the end, and one that is out of bounds is refused, unless `x` has no
    elements.
    """
    if x.dim() == 0 or isinstance(value, complex) or 0 in x.shape:
        return NotImplemented
    none = aten.full.default([x.shape[dim]], False, dtype=torch.bool, device=x.device)
    hit = aten.full.default([], True, dtype=torch.bool, device=x.device)
    hits = aten.index_put.default(none, [_row(index)], hit)
    shape = [1] * x.dim()
    shape[dim] = x.shape[dim]
    return aten.where.self(aten.view.default(hits, shape), _filled(x, value), x)


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
    return aten.view.default(
        mixed, [*batch, channels // factor**2, height * factor, width * factor]
    )


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
    return aten.view.default(
        mixed, [*batch, channels * factor**2, height // factor, width // factor]
    )


def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """index_put(x, [mask], number) = where(mask, number, x)."""
    (mask, *others) = indices
    if accumulate or others or mask is None or mask.dtype is not torch.bool or values.dim():
        return NotImplemented
    if mask.shape != x.shape[: mask.dim()] or values.dtype != x.dtype:
        return NotImplemented  # torch's own error
    spread = aten.view.default(mask, [*mask.shape, *[1] * (x.dim() - mask.dim())])
    return aten.where.self(spread, values, x)  # type: ignore[no-any-return]


def arange(end: Any, **options: Any) -> Tensor:
    """arange(end) = arange(0, end, 1)."""
    return aten.arange.start_step(0, end, 1, **options)  # type: ignore[no-any-return]


def arange_start(start: Any, end: Any, **options: Any) -> Tensor:
    """arange(start, end) = arange(start, end, 1)."""
    return aten.arange.start_step(start, end, 1, **options)  # type: ignore[no-any-return]


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **MULTIPLE_VIEWS,
    aten.log_sigmoid_forward.default: log_sigmoid_forward,
    aten.logaddexp2.default: logaddexp2,
    aten.nan_to_num.default: nan_to_num,
    aten._to_copy.default: to_copy,
    aten.heaviside.default: heaviside,
    aten.logit.default: logit,
    aten.sinc.default: sinc,
    aten.special_entr.default: entropy,
    aten.rrelu_with_noise.default: rrelu_with_noise,
    aten.native_dropout.default: native_dropout,
    aten.aminmax.default: aminmax,
    aten.count_nonzero.dim_IntList: count_nonzero,
    aten.mse_loss.default: mse_loss,
    aten.smooth_l1_loss.default: smooth_l1_loss,
    aten.huber_loss.default: huber_loss,
    aten.binary_cross_entropy.default: binary_cross_entropy,
    aten.soft_margin_loss.default: soft_margin_loss,
    aten.nll_loss_forward.default: nll_loss_forward,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_put.default: index_put,
    aten.pixel_shuffle.default: pixel_shuffle,
    aten.pixel_unshuffle.default: pixel_unshuffle,
    aten.arange.default: arange,
    aten.arange.start: arange_start,
}
"""By operator. Which operators are left is what lowering has rules for, or calls as they are."""
