"""Dropout and other draws of random numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fusewright.formulas.helpers import as_type, aten
from fusewright.formulas.table import formula


@formula(aten.rrelu_with_noise.default)
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


@formula(aten.native_dropout.default)
def native_dropout(x: Tensor, probability: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Dropout outside training gives its input and a mask of ones."""
    if train or train is None:
        return NotImplemented
    return aten.clone.default(x), aten.ones_like.default(x, dtype=torch.bool)


@formula(aten.native_dropout_backward.default)
def native_dropout_backward(gradient: Tensor, mask: Tensor, scale: float) -> Tensor:
    """g mask scale."""
    kept = aten.mul.Tensor(gradient, as_type(mask, gradient.dtype))
    return aten.mul.Tensor(kept, scale)


@formula(aten.bernoulli.p)
def bernoulli(x: Tensor, probability: float, generator: Any = None) -> Any:
    """The draw by way of truth values, which take a quarter of the memory to save. On a CPU they
    are drawn as such, from the same numbers.
    """
    if generator is not None or not x.dtype.is_floating_point:
        return NotImplemented
    if x.device.type == "cpu":
        kept = aten.bernoulli.p(aten.empty_like.default(x, dtype=torch.bool), probability)
    else:
        kept = aten.ne.Scalar(aten.bernoulli.p(x, probability), 0)
    return aten._to_copy.default(kept, dtype=x.dtype)
