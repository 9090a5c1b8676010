"""Writes by index to a tensor that shows elements of its memory many times, as `expand` makes them.

    x: memory [1, 2], shown as [[1, 1, 1], [2, 2, 2]]

    index_put_(x, [[0], [2]], 9)    ->    memory [9, 2]

The functional operator would give [[1, 1, 9], [2, 2, 2]], of which no copy into `x` makes that: it
is the element written to that has to be copied. So the operator is applied to what `x` shows once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def shown_once(x: Tensor) -> Tensor:
    """The view of `x` that is left where dimensions of stride 0 have the size 1."""
    for dim in repeated_dimensions(x):
        x = aten.slice.Tensor(x, dim, 0, 1)
    return x


def repeated_dimensions(x: Tensor) -> list[int]:
    """The dimensions along which all elements are one in memory, as `expand` makes them."""
    return [
        dim
        for dim, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True))
        if isinstance(stride, int) and stride == 0 and not (isinstance(size, int) and size <= 1)
    ]


def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """The values of `shown_once(x)` behind `index_put_`: the same indices into the numbers of its
    elements tell which are written to, in the same order.
    """
    once = shown_once(x)
    if any(index is not None and index.dtype == torch.bool for index in indices) and not (
        values.dim() or accumulate or len(indices) > 1
    ):
        (mask,) = indices
        return masked_fill(x, _trailing(mask, x.dim()), values)
    numbers = aten.arange.start_step(0, once.numel(), 1, device=x.device)
    numbers = aten.expand.default(aten.view.default(numbers, list(once.shape)), list(x.shape))
    places = aten.index.Tensor(numbers, list(indices))
    flat = aten.view.default(aten.clone.default(once, memory_format=_DENSE), [once.numel()])
    flat = aten.index_put.default(flat, [places], values, accumulate)
    return aten.view.default(flat, list(once.shape))  # type: ignore[no-any-return]


_DENSE = torch.contiguous_format


def _trailing(mask: Any, rank: int) -> Tensor:
    """`mask` of the first dimensions as one of all `rank`."""
    return aten.view.default(mask, [*mask.shape, *[1] * (rank - mask.dim())])  # type: ignore[no-any-return]


def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """The values of `shown_once(x)` behind `index_fill_`."""
    written = aten.full.default(list(x.shape), False, dtype=torch.bool, device=x.device)
    written = aten.index_fill.int_Scalar(written, dim, index, True)
    return masked_fill(x, written, value)


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The values of `shown_once(x)` behind `masked_fill_`."""
    mask = aten.expand.default(mask, list(x.shape))
    mask = aten.any.dims(mask, repeated_dimensions(x), True)
    once = shown_once(x)
    if isinstance(value, Tensor):
        return aten.masked_fill.Tensor(once, mask, value)  # type: ignore[no-any-return]
    return aten.masked_fill.Scalar(once, mask, value)  # type: ignore[no-any-return]


def _triangle(part: Any) -> Callable[..., Tensor]:
    """The values of `shown_once(x)` behind an operator that keeps `part` and writes zeros beside
    it.
    """

    def values(x: Tensor, diagonal: int = 0) -> Tensor:
        every = aten.full.default(list(x.shape), True, dtype=torch.bool, device=x.device)
        return masked_fill(x, aten.logical_not.default(part(every, diagonal)), 0)

    return values


WRITES_BY_INDEX: dict[Any, Callable[..., Tensor]] = {
    aten.index_put_.default: index_put,
    aten.index_fill_.int_Scalar: index_fill,
    aten.index_fill_.int_Tensor: index_fill,
    aten.masked_fill_.Scalar: masked_fill,
    aten.masked_fill_.Tensor: masked_fill,
    aten.tril_.default: _triangle(aten.tril.default),
    aten.triu_.default: _triangle(aten.triu.default),
}
"""By operator, of those that eager lets write to such a tensor: what the elements in memory then
are, in the sizes of `shown_once`.
"""
