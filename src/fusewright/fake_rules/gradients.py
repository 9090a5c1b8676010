"""Geometry of the operators that compute gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import (
    Geometry,
    Rule,
    contiguous,
    elementwise,
    named,
    same_sizes,
)


def like_both(gradient: Tensor, x: Tensor, *rest: Any, **options: Any) -> Geometry | None:
    """The gradient of a pointwise operator, from that of its result and one more tensor."""
    if gradient.shape != x.shape or gradient.dtype != x.dtype or not x.dtype.is_floating_point:
        return None
    return elementwise(gradient.dtype, (gradient, x))


def loss_gradient(gradient: Tensor, x: Tensor, target: Tensor, *options: Any) -> Geometry | None:
    """mse_loss_backward and the like: laid out as `x`, and of its type, where meta kernels give the
    type of a wider `target`.
    """
    if not x.dtype.is_floating_point or not target.dtype.is_floating_point:
        return None
    return elementwise(x.dtype, (x,)) if same_sizes(x.shape, target.shape) else None


def huber_gradient(gradient: Tensor, x: Tensor, target: Tensor, *options: Any) -> Geometry | None:
    """huber_loss_backward, which eager refuses where types differ."""
    is_of_one_type = gradient.dtype == x.dtype == target.dtype
    return loss_gradient(gradient, x, target) if is_of_one_type else None


def softmax_gradient(
    gradient: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype
) -> Geometry | None:
    """_softmax_backward_data and _log_softmax_backward_data, of one type throughout."""
    if gradient.dtype != input_dtype or not gradient.is_contiguous() or not output.is_contiguous():
        return None
    return like_both(gradient, output)


def embedding_gradient(
    gradient: Tensor, indices: Tensor, count: int, padding_index: int, scale: bool
) -> Geometry | None:
    """embedding_dense_backward: one row for each word."""
    return contiguous(gradient.dtype, (count, gradient.shape[-1]))


def margin_loss_gradient(gradient: Tensor, x: Tensor, *rest: Any) -> Geometry:
    """multi_margin_loss_backward, multilabel_margin_loss_backward."""
    return contiguous(x.dtype, x.shape)


def group_norm_gradient(
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
) -> tuple[Geometry | None, ...] | None:
    """native_group_norm_backward of no elements, where torch's meta kernel divides by their number:
    the gradients of x, the weight and the bias that `mask` asks for.
    """
    if x.numel() != 0:
        return None
    parameter = contiguous(x.dtype, (channels,))
    gradients = (elementwise(x.dtype, (x,)), parameter, parameter)
    return tuple([part if wanted else None for part, wanted in zip(gradients, mask, strict=True)])


def attention_gradient(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any
) -> Any:
    """_scaled_dot_product_flash_attention_for_cpu_backward: heads lie inside of positions."""
    if query.numel() == 0 or key.numel() == 0 or query.dtype != key.dtype:
        return None
    return tuple(_heads_inside(tensor) for tensor in (query, key, value))


def _heads_inside(x: Tensor) -> Geometry:
    batch, heads, length, width = x.shape
    stride = (length * heads * width, width, heads * width, 1)
    return Geometry(x.dtype, (batch, heads, length, width), stride)


RULES: dict[Any, Rule] = {
    **named(
        like_both,
        "gelu_backward tanh_backward sigmoid_backward silu_backward threshold_backward "
        "softshrink_backward hardshrink_backward",
    ),
    **named(
        loss_gradient,
        "mse_loss_backward smooth_l1_loss_backward soft_margin_loss_backward",
    ),
    **named(huber_gradient, "huber_loss_backward"),
    **named(softmax_gradient, "_softmax_backward_data _log_softmax_backward_data"),
    **named(embedding_gradient, "embedding_dense_backward"),
    **named(margin_loss_gradient, "multi_margin_loss_backward multilabel_margin_loss_backward"),
    **named(group_norm_gradient, "native_group_norm_backward"),
    **named(attention_gradient, "_scaled_dot_product_flash_attention_for_cpu_backward"),
}
