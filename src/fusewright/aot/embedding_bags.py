"""Sums, means and maxima of bags of embeddings where gradients are wanted: a library call, which
keeps in which bag each row is, and the like, in tensors whose sizes depend on data types, on the
processor and on the path that it chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fusewright import torch_compat
from fusewright.aot.eager_calls import record_eager
from fusewright.aot.subprograms import empty
from fusewright.aot.tracer import RECORDED_WHOLE, Recorder
from fusewright.errors import UnsupportedOperator
from fusewright.records import record

aten = torch.ops.aten

_MODES = ("sum", "mean", "max")
"""By their numbers in torch's operators."""


def record_embedding_bag(recorder: Recorder, function: Any, arguments: Sequence[Any]) -> Any:
    """Record a call of `torch.nn.functional.embedding_bag`; gives the bags, of shape (bags,
    features).

    Raises: `UnsupportedOperator`, for sparse gradients, a bound of the norm, and arguments that
    eager execution refuses.
    """
    indices, table, offsets, max_norm, _, by_frequency, mode, sparse, weights, has_end, padding = (
        arguments
    )
    tensors = [table] if weights is None else [table, weights]
    wants_gradients = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    is_plain = all(torch_compat.unwrapped(tensor) is tensor for tensor in (*tensors, indices))
    if not wants_gradients or not is_plain:
        return recorder.fakes.call(function, arguments, {})
    if sparse or max_norm is not None:
        raise UnsupportedOperator("embedding_bag with gradients and sparse or max_norm")
    if indices.dim() == 2 and offsets is None:
        bags, length = indices.shape
        offsets = torch.arange(0, bags * length, length or 1, device=indices.device)[:bags]
        indices = indices.reshape(-1)
        tensors[1:] = [tensor.reshape(-1) for tensor in tensors[1:]]
    is_weighted = weights is not None
    is_refused = mode not in _MODES or (is_weighted and mode != "sum")
    if offsets is None or indices.dim() != 1 or is_refused:
        raise UnsupportedOperator("embedding_bag of these arguments")
    call = _Call(
        by_frequency=by_frequency,
        mode=_MODES.index(mode),
        has_end=has_end,
        padding=-1 if padding is None else padding % table.shape[0],
    )
    count = offsets.shape[0] - int(has_end)
    result = empty(recorder, (count, table.shape[1]), table.dtype, table.device)
    inputs = (indices, offsets, *tensors)
    functions = call.forward, call.backward
    (bags,) = record_eager(recorder, "embedding_bag", functions, inputs, [result], inputs)
    return bags


@record
class _Call:
    """A call of torch's operator on indices, offsets, the table of embeddings and weights, if there
    are any.
    """

    by_frequency: bool
    mode: int
    has_end: bool
    """The last offset is no bag, but where the last bag ends."""

    padding: int
    """The index of rows that do not count, or -1."""

    def forward(
        self, indices: Tensor, offsets: Tensor, table: Tensor, weights: Tensor | None = None
    ) -> tuple[Any, ...]:
        """The bags, and what the gradient needs as an opaque value."""
        bags, *kept = aten._embedding_bag.default(
            table,
            indices,
            offsets,
            self.by_frequency,
            self.mode,
            False,
            weights,
            self.has_end,
            self.padding,
        )
        return bags, tuple(kept)

    def backward(
        self, indices: Tensor, offsets: Tensor, table: Tensor, *others: Any
    ) -> tuple[Any, ...]:
        """The gradients of the table and of the weights, given these too, the gradient of the bags
        and what was kept.
        """
        *weights, gradient, kept = others
        of_table = aten._embedding_bag_backward.default(
            gradient,
            indices,
            offsets,
            *kept,
            table.shape[0],
            self.by_frequency,
            self.mode,
            False,
            *(weights or [None]),
            self.padding,
        )
        if not weights:
            return None, None, of_table
        of_weights = aten._embedding_bag_per_sample_weights_backward.default(
            gradient, table, indices, offsets, kept[0], self.mode, self.padding
        )
        return None, None, of_table, of_weights


RECORDED_WHOLE[functional.embedding_bag] = record_embedding_bag
