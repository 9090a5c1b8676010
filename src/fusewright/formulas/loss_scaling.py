"""The operators that `torch.amp.GradScaler` calls, by operators that each write to one
tensor.

_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse_scale)
_amp_update_scale_(scale, growth_tracker, found_inf, growth, backoff, interval)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fusewright.formulas.helpers import aten
from fusewright.formulas.table import When, formula


@formula(aten._amp_foreach_non_finite_check_and_unscale_.default, when=When.EVERYWHERE)
def check_and_unscale(
    gradients: Sequence[Tensor], found_inf: Tensor, inverse_scale: Tensor
) -> None:
    """Multiply the gradients by a factor; 1 is written to `found_inf` where one is not finite."""
    factor = aten.view.default(inverse_scale, [])
    for gradient in gradients:
        finite = aten.all.default(aten.isfinite.default(gradient))
        finite = aten._to_copy.default(finite, dtype=found_inf.dtype)
        aten.copy_.default(found_inf, aten.where.self(finite != 0, found_inf, 1 - finite))
        aten.mul_.Tensor(gradient, factor)


@formula(aten._amp_update_scale_.default, when=When.EVERYWHERE)
def update_scale(
    scale: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    growth_factor: float,
    backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """A smaller scale where something was not finite; a larger one after some steps of the other
    kind, if that is finite itself.
    """
    failed = aten.ne.Scalar(found_inf, 0)
    steps = aten.where.ScalarOther(aten.logical_not.default(failed), growth_tracker + 1, 0)
    grows = aten.eq.Scalar(steps, growth_interval)
    wide = aten._to_copy.default(scale, dtype=torch.float64)
    larger = aten._to_copy.default(wide * growth_factor, dtype=scale.dtype)
    larger = aten.where.self(aten.isfinite.default(larger), larger, scale)
    smaller = aten._to_copy.default(wide * backoff_factor, dtype=scale.dtype)
    scales = aten.where.self(failed, smaller, aten.where.self(grows, larger, scale))
    aten.copy_.default(scale, aten.view.default(scales, scale.shape))
    steps = aten._to_copy.default(aten.where.ScalarSelf(grows, 0, steps), dtype=torch.int32)
    aten.copy_.default(growth_tracker, aten.view.default(steps, growth_tracker.shape))
    return scale
