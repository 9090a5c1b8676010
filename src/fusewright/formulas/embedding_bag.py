"""Sums, means and maxima of bags of embeddings, for graphs with gradients.

The library call keeps for its backward tensors whose sizes depend on data types, on the processor
and on the path that it chose; written out, nothing but indices is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fusewright.errors import UnsupportedOperator
from fusewright.formulas.table import When, formula


@formula(functional.embedding_bag, when=When.WITH_GRADIENTS)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """`torch.nn.functional.embedding_bag`: the bags, of shape (bags, features).

    Raises: `UnsupportedOperator`, for sparse gradients, a bound of the norm, gradients scaled by
    frequency, and arguments that eager execution refuses.
    """
    if sparse or max_norm is not None or scale_grad_by_freq:
        raise UnsupportedOperator(
            "embedding_bag with gradients and sparse, max_norm or scale_grad_by_freq"
        )
    if input.dim() == 2 and offsets is None:
        bags, length = input.shape
        offsets = torch.arange(0, bags * length, length or 1, device=input.device)[:bags]
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    weighted = per_sample_weights is not None
    if offsets is None or input.dim() != 1 or (weighted and mode != "sum"):
        raise UnsupportedOperator("embedding_bag of these arguments")

    count = offsets.shape[0] - int(include_last_offset)
    positions = torch.arange(input.shape[0], device=input.device, dtype=offsets.dtype)
    bag = torch.searchsorted(offsets, positions, right=True) - 1
    rows = functional.embedding(input, weight, padding_idx)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    counted = torch.ones_like(bag)
    if padding_idx is not None:
        is_padding = input == padding_idx % weight.shape[0]
        rows = rows.masked_fill(is_padding.unsqueeze(1), 0)
        counted = counted.masked_fill(is_padding, 0)

    if mode == "max":
        return _greatest(rows, bag, counted.bool(), count)
    sizes = counted.new_zeros(count).index_add(0, bag, counted)
    sums = rows.new_zeros(count, weight.shape[1]).index_add(0, bag, rows)
    if mode == "sum":
        return sums
    return sums / sizes.clamp(min=1).unsqueeze(1).to(sums.dtype)


def _greatest(rows: Tensor, bag: Tensor, counts: Tensor, bags: int) -> Tensor:
    """The greatest of the rows that count in each bag, the first of equal ones; 0 for none. As in
    eager, the first row holds even where it is NaN, and no other does.
    """
    length, features = rows.shape
    if length == 0:
        return rows.sum(0).expand(bags, features).contiguous()
    position = torch.arange(length, device=bag.device)
    first = bag.new_full((bags,), length).scatter_reduce(
        0, bag, torch.where(counts, position, length), "amin"
    )
    ignored = rows.isnan() & (position != first[bag]).unsqueeze(1) | ~counts.unsqueeze(1)
    values = rows.detach().masked_fill(ignored, float("-inf"))
    bag, position = (tensor.unsqueeze(1).expand(length, features) for tensor in (bag, position))
    greatest = values.new_full((bags, features), float("-inf"))
    greatest = greatest.scatter_reduce(0, bag, values, "amax").gather(0, bag)
    chosen = (values == greatest) & counts.unsqueeze(1) | values.isnan()
    where = bag.new_full((bags, features), length).scatter_reduce(
        0, bag, torch.where(chosen, position, length), "amin"
    )
    taken = rows.gather(0, where.clamp(max=length - 1))
    return taken.masked_fill(where == length, 0)
