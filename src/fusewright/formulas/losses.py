"""Losses and their gradients."""

from __future__ import annotations

from torch import Tensor

from fusewright.formulas.helpers import (
    HALF_TYPES,
    aten,
    column,
    eager_rounds_each_step,
    filled,
    is_computed,
    rounded,
    row,
    share_of,
    sum_over,
    widened,
)
from fusewright.formulas.table import formula


def reduce_loss(loss: Tensor, reduction: int) -> Tensor:
    """A loss an element, reduced as torch numbers it: 0 not at all, 1 mean, 2 sum."""
    match reduction:
        case 1:
            return aten.mean.default(loss)
        case 2:
            return aten.sum.default(loss)
        case _:
            return loss


def _mean_factor(reduction: int, x: Tensor) -> float:
    """The factor of each element in a loss."""
    return share_of(x.numel()) if reduction == 1 else 1.0


@formula(aten.mse_loss.default)
def mse_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """Mean squared error."""
    if not x.dtype.is_floating_point or x.dtype != target.dtype or eager_rounds_each_step(x):
        return NotImplemented
    difference = aten.sub.Tensor(widened(x), widened(target))
    return reduce_loss(rounded(aten.mul.Tensor(difference, difference), x), reduction)


@formula(aten.mse_loss_backward.default)
def mse_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """2 (x - t) g, of the mean's share; of two types eager refuses it before torch 2.13."""
    if not is_computed(x, target) or eager_rounds_each_step(x) or x.dtype != target.dtype:
        return NotImplemented
    difference = aten.sub.Tensor(widened(x), widened(target))
    scaled = aten.mul.Tensor(difference, 2 * _mean_factor(reduction, x))
    return rounded(aten.mul.Tensor(scaled, widened(gradient)), x)


@formula(aten.smooth_l1_loss.default)
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    """d²/(2 beta) where |d| < beta, else |d| - beta/2."""
    if not x.dtype.is_floating_point or x.dtype != target.dtype or eager_rounds_each_step(x):
        return NotImplemented
    distance = aten.abs.default(aten.sub.Tensor(widened(x), widened(target)))
    if beta == 0:
        return reduce_loss(rounded(distance, x), reduction)
    near = aten.div.Tensor(aten.mul.Tensor(aten.mul.Tensor(distance, distance), 0.5), beta)
    far = aten.sub.Scalar(distance, 0.5 * beta)
    loss = aten.where.self(aten.lt.Scalar(distance, beta), near, far)
    return reduce_loss(rounded(loss, x), reduction)


@formula(aten.huber_loss.default)
def huber_loss(x: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    """d²/2 where |d| <= delta, else delta (|d| - delta/2)."""
    if not x.dtype.is_floating_point or x.dtype != target.dtype or eager_rounds_each_step(x):
        return NotImplemented
    distance = aten.abs.default(aten.sub.Tensor(widened(x), widened(target)))
    near = aten.mul.Tensor(aten.mul.Tensor(distance, distance), 0.5)
    far = aten.mul.Tensor(aten.sub.Scalar(distance, 0.5 * delta), delta)
    loss = aten.where.self(aten.le.Scalar(distance, delta), near, far)
    return reduce_loss(rounded(loss, x), reduction)


@formula(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    """g d/beta where |d| < beta, else g sign(d), of the mean's share; of two types as that of
    `mse_loss`.
    """
    is_plain = x.dtype == target.dtype and x.dtype not in HALF_TYPES and beta != 0
    if not is_plain or not is_computed(x, target):
        return NotImplemented
    share = aten.mul.Tensor(gradient, _mean_factor(reduction, x))
    difference = aten.sub.Tensor(x, target)
    return _limited(
        difference, beta, share, aten.div.Tensor(aten.mul.Tensor(difference, share), beta)
    )


@formula(aten.huber_loss_backward.default)
def huber_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, delta: float
) -> Tensor:
    """g d where |d| < delta, else g delta sign(d), of the mean's share; eager refuses two types."""
    if not is_computed(x, target) or x.dtype in HALF_TYPES or x.dtype != target.dtype:
        return NotImplemented
    share = aten.mul.Tensor(gradient, _mean_factor(reduction, x))
    difference = aten.sub.Tensor(x, target)
    beyond = aten.mul.Tensor(share, delta)
    return _limited(difference, delta, beyond, aten.mul.Tensor(difference, share))


def _limited(x: Tensor, limit: float, beyond: Tensor, within: Tensor) -> Tensor:
    """`within` where |x| < limit; else `beyond`, with the sign of x."""
    result = aten.where.self(aten.ge.Scalar(x, limit), beyond, within)
    return aten.where.self(aten.le.Scalar(x, -limit), aten.neg.default(beyond), result)


@formula(aten.binary_cross_entropy.default)
def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """-(t log(x) + (1 - t) log(1 - x)), each logarithm at least -100; laid out as `x`, which
    therefore comes first in each product. On the CPU `x` is checked to lie between 0 and 1.
    """
    if eager_rounds_each_step(x):
        return NotImplemented
    if x.device.type == "cpu":
        inside = aten.logical_and.default(aten.ge.Scalar(x, 0), aten.le.Scalar(x, 1))
        aten._assert_async.msg(
            aten.all.default(inside), "all elements of input should be in [0, 1]"
        )
    wide, wide_target = widened(x), widened(target)
    log_x = aten.clamp_min.default(aten.log.default(wide), -100)
    log_rest = aten.clamp_min.default(aten.log1p.default(aten.neg.default(wide)), -100)
    negative = aten.mul.Tensor(log_rest, aten.sub.Scalar(wide_target, 1))
    loss = rounded(aten.sub.Tensor(negative, aten.mul.Tensor(log_x, wide_target)), x)
    if weight is not None:
        loss = aten.mul.Tensor(loss, weight)
    return reduce_loss(loss, reduction)


@formula(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """(1 - t) x - p log(sigmoid(x)), where p weighs the positive: 1, or (pos_weight - 1) t + 1."""
    if eager_rounds_each_step(x) or not (x.dtype == target.dtype and x.dtype.is_floating_point):
        return NotImplemented
    wide, wide_target = widened(x), widened(target)
    log_sigmoid = aten.log_sigmoid_forward.default(wide)[0]
    if pos_weight is not None:
        share = aten.mul.Tensor(aten.sub.Scalar(widened(pos_weight), 1), wide_target)
        log_sigmoid = aten.mul.Tensor(log_sigmoid, aten.add.Scalar(share, 1))
    loss = aten.mul.Tensor(aten.rsub.Scalar(wide_target, 1), wide)
    loss = rounded(aten.sub.Tensor(loss, log_sigmoid), x)
    if weight is not None:
        loss = aten.mul.Tensor(loss, weight)
    return reduce_loss(loss, reduction)


@formula(aten.binary_cross_entropy_backward.default)
def binary_cross_entropy_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """w g (x - t) / (x (1 - x)), whose denominator is at least 1e-12, of the mean's share."""
    if not is_computed(x, target, weight) or x.dtype in HALF_TYPES or x.dtype != target.dtype:
        return NotImplemented
    spread = aten.clamp_min.default(aten.mul.Tensor(aten.rsub.Scalar(x, 1), x), 1e-12)
    result = aten.mul.Tensor(aten.sub.Tensor(x, target), gradient)
    result = aten.div.Tensor(result, spread)
    if weight is not None:
        result = aten.mul.Tensor(result, weight)
    return aten.mul.Tensor(result, _mean_factor(reduction, x)) if reduction == 1 else result


@formula(aten.soft_margin_loss.default)
def soft_margin_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """log(1 + exp(-t x))."""
    if x.dtype != target.dtype or eager_rounds_each_step(x):
        return NotImplemented
    product = aten.mul.Tensor(aten.neg.default(widened(target)), widened(x))
    loss = aten.log1p.default(aten.exp.default(product))
    return reduce_loss(rounded(loss, x), reduction)


@formula(aten.soft_margin_loss_backward.default)
def soft_margin_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int
) -> Tensor:
    """-t g z / (z + 1) with z = exp(-t x), of the mean's share."""
    if not is_computed(x, target) or x.dtype in HALF_TYPES or x.dtype != target.dtype:
        return NotImplemented
    negative = aten.neg.default(target)
    power = aten.exp.default(aten.mul.Tensor(negative, x))
    slope = aten.mul.Tensor(aten.mul.Tensor(negative, _mean_factor(reduction, x)), power)
    slope = aten.div.Tensor(slope, aten.add.Scalar(power, 1))
    return aten.mul.Tensor(slope, gradient)


@formula(aten._log_softmax.default)
def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """From `x`, which is in memory anyway, and two numbers a row backward makes it again, so that
    nobody writes it: of a language model's logits it is as large as these, and twice as large in
    float32, as autocast has it. A CPU has a kernel for the whole operator.
    """
    if x.device.type == "cpu" or not is_computed(x) or x.dim() == 0 or not x.is_contiguous():
        return NotImplemented
    result = log_softmax_of(widened(x), dim)
    return result if half_to_float else rounded(result, x)


def log_softmax_of(x: Tensor, dim: int) -> Tensor:
    """(x - max) - log(sum of exp(x - max))."""
    shifted = aten.sub.Tensor(x, aten.amax.default(x, [dim], True))
    return aten.sub.Tensor(shifted, aten.log.default(sum_over(aten.exp.default(shifted), [dim])))


@formula(aten.nll_loss_forward.default)
def nll_loss_forward(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """-x[target], weighted by class; ignored rows count nothing. Gives (loss, total weight)."""
    if x.dim() not in (1, 2) or eager_rounds_each_step(x) or target.dim() != x.dim() - 1:
        return NotImplemented
    ignored = aten.eq.Scalar(target, ignore_index)
    safe = aten.where.self(ignored, filled(target, 0), target)
    picked = _picked(x, safe)
    zero = filled(x, 0.0)
    if weight is None:
        kept = aten._to_copy.default(aten.logical_not.default(ignored), dtype=x.dtype)
        row_weight = kept
    else:
        row_weight = aten.where.self(ignored, zero, aten.index_select.default(weight, 0, row(safe)))
        row_weight = aten.view.default(row_weight, list(target.shape))
    scaled = picked if weight is None else aten.mul.Tensor(picked, row_weight)
    loss = aten.where.self(ignored, zero, aten.neg.default(scaled))
    total = aten.sum.default(widened(row_weight))
    match reduction:
        case 0:
            return loss, filled(x, 0.0)
        case 2:
            return aten.sum.default(loss), rounded(total, x)
        case _:
            mean = aten.div.Tensor(aten.sum.default(widened(loss)), total)
            return rounded(mean, x), rounded(total, x)


@formula(aten.nll_loss_backward.default)
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
    if x.dim() not in (1, 2) or eager_rounds_each_step(x) or target.dim() != x.dim() - 1:
        return NotImplemented
    share = aten.div.Tensor(gradient, total_weight) if reduction == 1 else gradient
    share = aten.neg.default(share)
    row = aten.unsqueeze.default(target, -1)
    classes = aten.arange.start_step(0, x.shape[-1], 1, device=x.device)
    hit = aten.logical_and.default(aten.eq.Tensor(classes, row), aten.ne.Scalar(row, ignore_index))
    if weight is not None:
        share = aten.mul.Tensor(share if share.dim() == 0 else column(share), weight)
    elif share.dim() > 0:
        share = column(share)
    zero = filled(x, 0.0)
    return aten.where.self(hit, share, zero)


def _picked(x: Tensor, index: Tensor) -> Tensor:
    """x[i, index[i]], or x[index] for a vector."""
    if x.dim() == 1:
        return aten.squeeze.dim(aten.index_select.default(x, 0, row(index)), 0)
    column = aten.gather.default(x, 1, aten.unsqueeze.default(index, 1))
    return aten.squeeze.dim(column, 1)
