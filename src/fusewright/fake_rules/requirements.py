"""Requirements of operators on their arguments' sizes where torch's meta kernels do not look: eager
raises, and so do fakes; with symbolic sizes what is required is guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.fake_rules.reductions import has_elements
from fusewright.fake_rules.views import VIEW_RULES, ViewGeometry

aten = torch.ops.aten

Requirement = Callable[..., bool]
"""Given an operator's arguments: whether their sizes fit together."""


def _same(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(sizes) == len(others) and all(a == b for a, b in zip(sizes, others, strict=True))


def _fills(view: Any) -> Requirement:
    """The source has the sizes of a view of the first argument."""

    def fits(x: Tensor, source: Tensor, *arguments: Any, **keywords: Any) -> bool:
        shown = VIEW_RULES[view](x, *arguments, **keywords)
        return not isinstance(shown, ViewGeometry) or _same(shown.size, source.shape)

    return fits


def _source_fits(
    x: Tensor, dim: int, index: Tensor, source: Tensor, *arguments: Any, **keywords: Any
) -> bool:
    """One slice of the source for each place, each as large as the slices of `x`."""
    if not (x.dim() and source.dim()):
        return bool(index.numel() == source.numel())
    others = [[*tensor.shape] for tensor in (x, source)]
    count = others[1].pop(dim)
    others[0].pop(dim)
    return bool(index.numel() == count) and _same(*others)


def _values_fit(
    x: Any, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> bool:
    """The values broadcast to what the indices choose, where its size does not depend on data."""
    if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return True
    wanted = x.fake_mode.dispatch(aten.index.Tensor, (x, indices), {}).shape
    size_of_values = values.shape
    if len(size_of_values) > len(wanted):
        return all(size == 1 for size in size_of_values[: len(size_of_values) - len(wanted)])
    pairs = zip(size_of_values, wanted[len(wanted) - len(size_of_values) :], strict=True)
    return all(size == 1 or size == other for size, other in pairs)


def padding_fits(x: Tensor, pad: Sequence[Any], value: Any = 0) -> bool:
    """Require that there is as much as negative padding cuts off, first in front and then at the
    end.
    """
    for size, before, after in zip(reversed(x.shape), pad[::2], pad[1::2], strict=False):
        kept = size + before if before < 0 else size
        if kept < 0 or (after < 0 and kept + after < 0):
            return False
    return True


def _gives_channels(x: Tensor, weight: Tensor, *arguments: Any) -> bool:
    """A convolution has something to give."""
    return bool(weight.shape[0] >= 1)


def _has_samples(x: Tensor, indices: Sequence[Tensor | None]) -> bool:
    """Require elements in each sample of the batch: resampling and padding, made of other operators
    where sizes are symbolic, read them.
    """
    return all(size != 0 for size in x.shape[1:])


def picks_from_something(x: Tensor, indices: Sequence[Tensor | None]) -> bool:
    """No dimension that elements are picked from is known to have none, where any are picked. Where
    the result has none for another reason, no kernel looks.
    """
    pairs = zip(x.shape, indices, strict=False)
    chosen = [(size, index) for size, index in pairs if index is not None]
    is_empty = any(type(size) is int and size == 0 for size, _ in chosen)
    picked = [size for _, index in chosen for size in index.shape]
    return not is_empty or any(type(size) is not int or size == 0 for size in picked)


def within_storage(
    x: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> bool:
    """The storage of `x` holds all elements of such a view."""
    shown = VIEW_RULES[aten.as_strided.default](x, size, stride, storage_offset)
    return isinstance(shown, ViewGeometry)


def _part_within_storage(x: Tensor, source: Tensor, *geometry: Any, **keywords: Any) -> bool:
    """The storage of `x` holds the part, which has the sizes of the source."""
    return within_storage(x, *geometry, **keywords) and _same(geometry[0], source.shape)


def _has_elements(x: Tensor) -> bool:
    """On a GPU, no size is known to be 0; on the CPU eager is asked, whose words are better."""
    has_elements(x)
    return x.device.type == "cpu" or not any(type(n) is int and n == 0 for n in x.shape)


def _has_extremes(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> bool:
    """As `_has_elements`, along a dimension: eager is asked."""
    has_elements(x, dim)
    return True


REQUIREMENTS: dict[Any, Requirement] = {
    aten.as_strided.default: within_storage,
    aten.as_strided_copy.default: within_storage,
    aten.as_strided_scatter.default: _part_within_storage,
    aten.select_scatter.default: _fills(aten.select.int),
    aten.slice_scatter.default: _fills(aten.slice.Tensor),
    aten.diagonal_scatter.default: _fills(aten.diagonal.default),
    aten.index_add.default: _source_fits,
    aten.index_copy.default: _source_fits,
    aten.index_reduce.default: _source_fits,
    aten.index_put.default: _values_fit,
    aten.constant_pad_nd.default: padding_fits,
    aten.convolution.default: _gives_channels,
    aten._unsafe_index.Tensor: _has_samples,
    aten.min.default: _has_elements,
    aten.max.default: _has_elements,
    aten.aminmax.default: _has_extremes,
}
"""Requirements by operator that writes to none of its arguments; the same hold in place."""
