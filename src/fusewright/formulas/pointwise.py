"""Operators that compute each element by itself, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fusewright.formulas.helpers import (
    HALF_TYPES,
    as_gpus_take,
    aten,
    filled,
    rounded,
    to_compare,
    widened,
)
from fusewright.formulas.table import formula


@formula(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """log_sigmoid(x) = min(x, 0) - log1p(exp(-|x|)); no buffer for backward. The result is
    row-major on the CPU and laid out like `x` elsewhere, as eager's.
    """
    wide = widened(x)
    if x.device.type == "cpu" and not wide.is_contiguous():
        wide = aten.clone.default(wide, memory_format=torch.contiguous_format)
    tail = aten.log1p.default(aten.exp.default(aten.neg.default(aten.abs.default(wide))))
    result = aten.sub.Tensor(aten.clamp_max.default(wide, 0), tail)
    return rounded(result, x), aten.new_empty.default(x, [0])


@formula(aten.log_sigmoid_backward.default)
def log_sigmoid_backward(gradient: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """g sigmoid(-x), for every type: the forward by `log_sigmoid_forward` leaves no buffer."""
    slope = aten.sigmoid.default(aten.neg.default(widened(x)))
    return rounded(aten.mul.Tensor(widened(gradient), slope), x)


@formula(aten.logaddexp2.default)
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


@formula(aten.nan_to_num.default)
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
    result = aten.where.self(aten.isnan.default(x), filled(x, nan or 0.0), x)
    result = aten.where.self(aten.eq.Scalar(x, math.inf), filled(x, highest), result)
    return aten.where.self(aten.eq.Scalar(x, -math.inf), filled(x, lowest), result)


@formula(aten._to_copy.default)
def to_copy(x: Tensor | complex, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """_to_copy(0.1) = a tensor of no dimensions: batching converts the number of `0.1 * x`."""
    if isinstance(x, Tensor):
        return NotImplemented
    return aten.scalar_tensor.default(x, dtype=dtype or torch.tensor(x).dtype, **options)


@formula(aten.fmax.default)
def fmax(x: Tensor, y: Tensor) -> Any:
    """The greater, or the other one where one is NaN; on a GPU 0 is above -0."""
    return _other_than_nan(x, y, aten.maximum.default)


@formula(aten.fmin.default)
def fmin(x: Tensor, y: Tensor) -> Any:
    """The smaller, or the other one where one is NaN; on a GPU -0 is below 0."""
    return _other_than_nan(x, y, aten.minimum.default)


def _other_than_nan(x: Tensor, y: Tensor, extreme: Callable[..., Tensor]) -> Any:
    """Of GPUs' tensors alone: on a CPU the first of two zeros is taken."""
    if x.device.type == "cpu" or not x.dtype.is_floating_point or x.dtype != y.dtype:
        return NotImplemented
    either = aten.where.self(aten.isnan.default(y), x, extreme(x, y))
    return aten.where.self(aten.isnan.default(x), y, either)


@formula(aten.heaviside.default)
def heaviside(x: Tensor, values: Tensor) -> Tensor:
    """heaviside(x, v) = v where x is 0, else 1 where x is above 0, else 0; 0 for NaN."""
    if x.dtype is torch.bool or x.dtype != values.dtype:
        return NotImplemented
    step = aten._to_copy.default(aten.gt.Scalar(x, 0), dtype=x.dtype)
    return aten.where.self(aten.eq.Scalar(x, 0), values, step)


@formula(aten.logit.default)
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """logit(x) = log(x / (1 - x)), x first clamped to [eps, 1 - eps]: what is below eps is eps,
    also where these bounds cross.
    """
    if not x.dtype.is_floating_point:
        return NotImplemented
    wide = widened(x)
    if eps is not None:
        low = filled(wide, eps)
        is_low = aten.lt.Scalar(wide, eps)
        wide = aten.where.self(is_low, low, aten.clamp_max.default(wide, 1 - eps))
    rest = aten.add.Scalar(aten.neg.default(wide), 1)
    return rounded(aten.log.default(aten.div.Tensor(wide, rest)), x)


@formula(aten.sinc.default)
def sinc(x: Tensor) -> Tensor:
    """sinc(x) = sin(pi x) / (pi x), 1 at 0."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    wide = aten.mul.Tensor(widened(x), math.pi)
    ratio = aten.div.Tensor(aten.sin.default(wide), wide)
    return rounded(aten.where.self(aten.eq.Scalar(wide, 0), filled(wide, 1.0), ratio), x)


@formula(aten.special_entr.default)
def entropy(x: Tensor) -> Tensor:
    """special_entr(x) = -x log(x), 0 at 0, -inf below."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    wide = widened(x)
    inside = aten.neg.default(aten.mul.Tensor(wide, aten.log.default(wide)))
    edge = aten.where.self(aten.eq.Scalar(wide, 0), filled(wide, 0.0), filled(wide, -math.inf))
    above = aten.logical_or.default(aten.gt.Scalar(wide, 0), aten.isnan.default(wide))
    return rounded(aten.where.self(above, inside, edge), x)


@formula(aten.threshold.default)
def threshold(x: Tensor, limit: float, value: float) -> Tensor:
    """The same with the limit that kernels take."""
    taken = as_gpus_take(limit, x)
    return NotImplemented if taken == limit else aten.threshold.default(x, taken, value)


@formula(aten.softshrink.default)
def softshrink(x: Tensor, limit: float = 0.5) -> Tensor:
    """The same with the limit that kernels take."""
    taken = as_gpus_take(limit, x)
    return NotImplemented if taken == limit else aten.softshrink.default(x, taken)


@formula(aten.threshold_backward.default)
def threshold_backward(gradient: Tensor, x: Tensor, threshold: float) -> Tensor:
    """0 where x <= threshold, else g: where x itself is not kept, truth values are."""
    zero = filled(gradient, 0)
    threshold = as_gpus_take(threshold, x)
    is_low = aten.le.Scalar(to_compare(x, threshold), threshold)
    return aten.where.self(is_low, zero, gradient)


@formula(aten.leaky_relu_backward.default)
def leaky_relu_backward(gradient: Tensor, x: Tensor, slope: float, is_result: bool) -> Tensor:
    """g where x > 0, else slope g."""
    below = aten.mul.Tensor(gradient, slope)
    return aten.where.self(aten.gt.Scalar(x, 0), gradient, below)


@formula(aten.hardtanh_backward.default)
def hardtanh_backward(gradient: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    """g strictly between the bounds, else 0; for NaN 0 on a CPU, g on a GPU."""
    zero = filled(gradient, 0)
    x = to_compare(x, low, high)
    if x.device.type == "cpu":
        inside = aten.logical_and.default(aten.gt.Scalar(x, low), aten.lt.Scalar(x, high))
        return aten.where.self(inside, gradient, zero)
    outside = aten.logical_or.default(aten.le.Scalar(x, low), aten.ge.Scalar(x, high))
    return aten.where.self(outside, zero, gradient)


@formula(aten.hardshrink.default)
def hardshrink(x: Tensor, limit: float = 0.5) -> Tensor:
    """0 within [-limit, limit], else x."""
    inside = aten.le.Scalar(aten.abs.default(x), limit)
    return aten.where.self(inside, filled(x, 0), x)


@formula(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(gradient: Tensor, x: Tensor, limit: float) -> Tensor:
    """0 within [-limit, limit], else g; for NaN 0 on a CPU, g on a GPU."""
    zero = filled(gradient, 0)
    if x.device.type == "cpu":
        outside = aten.gt.Scalar(aten.abs.default(x), limit)
        return aten.where.self(outside, gradient, zero)
    inside = aten.logical_and.default(aten.ge.Scalar(x, -limit), aten.le.Scalar(x, limit))
    return aten.where.self(inside, zero, gradient)


@formula(aten.hardswish_backward.default)
def hardswish_backward(gradient: Tensor, x: Tensor) -> Tensor:
    """0 up to -3, g (x / 3 + 1 / 2) below 3, g from there on; for NaN NaN on a CPU, g on a GPU."""
    wide, factor = widened(x), widened(gradient)
    inner = aten.mul.Tensor(factor, aten.add.Scalar(aten.div.Scalar(wide, 3.0), 0.5))
    if x.device.type == "cpu":
        inner = aten.where.self(aten.ge.Scalar(wide, 3.0), factor, inner)
    else:
        inner = aten.where.self(aten.lt.Scalar(wide, 3.0), inner, factor)
    return rounded(aten.where.self(aten.le.Scalar(wide, -3.0), filled(inner, 0), inner), x)


@formula(aten.elu_backward.default)
def elu_backward(
    gradient: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Tensor:
    """scale g where x > 0, else g input_scale (result + scale alpha); scale g for NaN on a GPU,
    whose kernel asks whether x <= 0.
    """
    if x.dtype in HALF_TYPES:
        return NotImplemented
    if is_result:
        inner = aten.mul.Tensor(aten.add.Tensor(x, alpha * scale), input_scale)
    else:
        power = aten.exp.default(aten.mul.Tensor(x, input_scale))
        inner = aten.mul.Tensor(power, input_scale * alpha * scale)
    below = aten.mul.Tensor(gradient, inner)
    above = aten.mul.Tensor(gradient, scale)
    if x.device.type == "cpu":
        return aten.where.self(aten.gt.Scalar(x, 0), above, below)
    return aten.where.self(aten.le.Scalar(x, 0), below, above)


@formula(aten.silu_backward.default)
def silu_backward(gradient: Tensor, x: Tensor) -> Any:
    """g s (1 + x (1 - s)) with s = sigmoid(x), of half types: torch's composition of it in simpler
    operators, which does for others, rounds at each.
    """
    if x.dtype not in HALF_TYPES:
        return NotImplemented
    wide = widened(x)
    gate = aten.sigmoid.default(wide)
    rest = aten.mul.Tensor(wide, aten.rsub.Scalar(gate, 1))
    slope = aten.mul.Tensor(gate, aten.add.Scalar(rest, 1))
    return rounded(aten.mul.Tensor(widened(gradient), slope), x)


@formula(aten.mish_backward.default)
def mish_backward(gradient: Tensor, x: Tensor) -> Any:
    """g (t + x sigmoid(x) (1 - t²)) with t = tanh(softplus(x)), of half types, as above."""
    if x.dtype not in HALF_TYPES:
        return NotImplemented
    wide = widened(x)
    bent = aten.tanh.default(aten.softplus.default(wide))
    rest = aten.rsub.Scalar(aten.mul.Tensor(bent, bent), 1)
    inner = aten.mul.Tensor(aten.mul.Tensor(wide, aten.sigmoid.default(wide)), rest)
    return rounded(aten.mul.Tensor(widened(gradient), aten.add.Tensor(bent, inner)), x)


@formula(aten.softplus_backward.default)
def softplus_backward(gradient: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    """g sigmoid(beta x); g where beta x is above the threshold."""
    if x.dtype in HALF_TYPES:
        return NotImplemented
    scaled = aten.mul.Tensor(x, beta)
    slope = aten.mul.Tensor(gradient, aten.sigmoid.default(scaled))
    return aten.where.self(aten.gt.Scalar(scaled, threshold), gradient, slope)


@formula(aten._prelu_kernel_backward.default)
def prelu_backward(gradient: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """(g, 0) where x > 0, else (w g, x g)."""
    above = aten.gt.Scalar(x, 0)
    of_x = aten.where.self(above, gradient, aten.mul.Tensor(weight, gradient))
    of_weight = aten.mul.Tensor(x, gradient)
    return of_x, aten.where.self(above, filled(of_weight, 0), of_weight)


@formula(aten.glu_backward.default)
def glu_backward(gradient: Tensor, x: Tensor, dim: int) -> Tensor:
    """For x = (a, b): (g s, g a s (1 - s)) with s = sigmoid(b)."""
    half = x.shape[dim] // 2
    a = widened(aten.slice.Tensor(x, dim, 0, half))
    gate = aten.sigmoid.default(widened(aten.slice.Tensor(x, dim, half, 2 * half)))
    of_a = aten.mul.Tensor(gate, widened(gradient))
    slope = aten.mul.Tensor(aten.rsub.Scalar(gate, 1), a)
    return rounded(aten.cat.default([of_a, aten.mul.Tensor(of_a, slope)], dim), x)


@formula(aten.logit_backward.default)
def logit_backward(gradient: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """g / (x (1 - x)) from eps to 1 - eps, else 0; without eps NaN outside of 0 to 1. For NaN with
    eps 0 on a CPU, NaN on a GPU.
    """
    if x.dtype in HALF_TYPES:
        return NotImplemented
    slope = aten.div.Tensor(gradient, aten.mul.Tensor(x, aten.rsub.Scalar(x, 1)))
    low, outside = (0.0, math.nan) if eps is None or eps < 0 else (eps, 0.0)
    if x.device.type == "cpu":
        inside = aten.logical_and.default(aten.ge.Scalar(x, low), aten.le.Scalar(x, 1 - low))
        return aten.where.self(inside, slope, filled(x, outside))
    is_outside = aten.logical_or.default(aten.lt.Scalar(x, low), aten.gt.Scalar(x, 1 - low))
    return aten.where.self(is_outside, filled(x, outside), slope)


@formula(aten.mm.default, aten.bmm.default)
def outer_product(x: Tensor, y: Tensor) -> Any:
    """A product of matrices that sums nothing: what reads it computes it again, in place of saving
    it.
    """
    if x.shape[-1] != 1 or not (x.is_contiguous() and y.is_contiguous()):
        return NotImplemented
    return aten.mul.Tensor(x, y)
