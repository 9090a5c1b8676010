"""The gradient of values put where a mask holds, without knowing how many places those are.

    y = x.clone(); y[mask] = values         values: (n, features), or of fewer sizes

Eager's gradient of `values` is `gradient[mask]`, whose first size n depends on the mask. But it is
to have the sizes of `values`: either those tell n, or there is one row of values for all places,
and its gradient is a sum over them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.errors import DataDependent

aten = torch.ops.aten

MASKS = (torch.bool, torch.uint8)


def has_mask(indices: Sequence[Tensor | None]) -> bool:
    """Whether a size of what `indices` choose depends on values."""
    return any(index is not None and index.dtype in MASKS for index in indices)


def gradient_of_put_values(gradient: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """`gradient[indices]`, summed as far as the values were expanded that the backward running now
    wants the gradient of.

    `indices`: one mask, and None for the dimensions before and after it. Raises: `DataDependent`,
    for other indices, or outside of the backward of `index_put`.
    """
    size = torch_compat.wanted_gradient_size("IndexPut", 1)
    given = [(place, index) for place, index in enumerate(indices) if index is not None]
    if size is None or len(given) != 1:
        raise DataDependent("the size of what a mask chooses depends on the values of a tensor")
    ((first, mask),) = given
    after = gradient.dim() - first - mask.dim()
    places = size[len(size) - 1 - after] if len(size) > after else 1
    if places != 1:
        chosen = aten.nonzero_static.default(mask != 0, size=places)
        return aten.index.Tensor(gradient, [*indices[:first], *chosen.unbind(1)])
    aligned = (mask != 0).reshape([1] * first + list(mask.shape) + [1] * after)
    masked = aten.where.ScalarOther(aligned, gradient, 0)
    return masked.flatten(first, first + mask.dim() - 1).sum(first, keepdim=True)
