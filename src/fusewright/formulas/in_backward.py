"""Operators that autograd's formulas call: those whose results depend on values, where gradients do
not, and those that eager does not call for plain tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.formulas.helpers import aten
from fusewright.formulas.table import When, formula

MASKS = (torch.bool, torch.uint8)


@formula(aten.index.Tensor, when=When.BACKWARD)
def gradient_of_put_values(gradient: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """The gradient of values that were put where a mask holds, without knowing at how many places.

        y = x.clone(); y[mask] = values         values: (n, features), or of fewer sizes

    Eager's is `gradient[mask]`, whose first size n depends on the mask. But it is to have the sizes
    of `values`: either those tell n, or there is one row of values for all places, and its gradient
    is a sum over them.
    """
    masks = [(place, index) for place, index in enumerate(indices) if index is not None]
    size = torch_compat.autograd.wanted_gradient_size("IndexPut", 1)
    if size is None or len(masks) != 1 or masks[0][1].dtype not in MASKS:
        return NotImplemented
    ((first, mask),) = masks
    mask = mask.to(gradient.device)  # eager takes one of the CPU
    after = gradient.dim() - first - mask.dim()
    places = size[len(size) - 1 - after] if len(size) > after else 1
    if isinstance(places, torch.SymInt) and (places == 1).node.depends_on_data():
        return _rows_or_their_sum(gradient, [*indices[:first], *mask.nonzero().unbind(1)], places)
    if places != 1:
        chosen = aten.nonzero_static.default(mask != 0, size=places)
        return aten.index.Tensor(gradient, [*indices[:first], *chosen.unbind(1)])
    aligned = (mask != 0).reshape([1] * first + list(mask.shape) + [1] * after)
    masked = aten.where.ScalarOther(aligned, gradient, 0)
    return masked.flatten(first, first + mask.dim() - 1).sum(first, keepdim=True)


def _rows_or_their_sum(
    gradient: Tensor, indices: Sequence[Tensor | None], places: torch.SymInt
) -> Tensor:
    """The rows of a gradient that `indices` name, where these are as many as `places`; their sum
    where that is 1. Which it is depends on data.
    """
    rows = aten.index.Tensor(gradient, indices)
    dim = indices.count(None)
    last = aten.full.default([], places - 1, device=gradient.device)
    targets = torch.minimum(torch.arange(rows.shape[dim], device=gradient.device), last)
    shape = (*rows.shape[:dim], places, *rows.shape[dim + 1 :])
    return rows.new_zeros(shape).index_add(dim, targets, rows)


@formula(aten.allclose.default, when=When.BACKWARD)
def required_closeness(a: Tensor, b: Tensor, *tolerance: Any, **options: Any) -> bool:
    """True: a formula that calls `allclose` refuses to go on otherwise, as the compiled code does.

    The phases of complex singular vectors and eigenvectors are arbitrary; a loss that depends on
    them has no gradient.
    """
    if not torch_compat.autograd.runs_backward_of(("LinalgSvd", "LinalgEig")):
        return NotImplemented
    close = aten.isclose.default(a, b, *tolerance, **options).all()
    aten._assert_async.msg(close, "a loss that depends on the phase of complex vectors")
    return True


@formula(aten._unique.default, when=When.BACKWARD)
def rows_filled(index: Tensor, *options: Any, **named_options: Any) -> tuple[Tensor, Tensor]:
    """The rows that `index_fill` filled, which its formula hands on to `index_select`: in what
    that gives here, it does not matter that some are named twice.
    """
    is_wanted = torch_compat.autograd.runs_backward_of(("IndexFill",))
    return (index, index) if is_wanted else NotImplemented


@formula(aten.index_select.default, when=When.BACKWARD)
def gradient_where_filled(gradient: Tensor, dim: int, index: Tensor) -> Tensor:
    """`gradient` with zeros in all rows but those that `index_fill` filled. torch's formula sums up
    the rows in `index`, where a row may stand twice; here each counts once.
    """
    if not torch_compat.autograd.runs_backward_of(("IndexFill",)) or gradient.dim() == 0:
        return NotImplemented
    filled = torch.zeros(gradient.shape[dim], dtype=torch.bool, device=gradient.device)
    filled = filled.index_fill(0, index, True)
    after = gradient.dim() - 1 - dim % gradient.dim()
    return aten.where.ScalarOther(filled.reshape(-1, *[1] * after), gradient, 0)


EXTREMES_OF_ALL = ("MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0")


@formula(aten.mul.Tensor, when=When.BACKWARD)
def gradient_of_extremes(chosen: Any, gradient: Any) -> Tensor:
    """The gradient of the extreme or median of all elements: on a CPU eager fills it in where the
    extreme is, beside zeros; elsewhere, and for any tensor that is no plain one, it multiplies by a
    mask, which makes 0 * -1 = -0 and 0 * inf = NaN.
    """
    is_plain = isinstance(chosen, Tensor) and chosen.device.type == "cpu"
    is_mask = is_plain and chosen.dtype == torch.bool
    if not (is_mask and torch_compat.autograd.runs_backward_of(EXTREMES_OF_ALL)):
        return NotImplemented
    return aten.where.ScalarOther(chosen, gradient, 0)
