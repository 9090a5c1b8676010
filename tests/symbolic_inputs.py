"""Example inputs with symbolic sizes, as capture makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fusewright.fake import FakeMode
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import index_of, symbolic_int

Chosen = Callable[[int, int], bool]
"""Whether a dimension, given the number of its tensor and its own, is symbolic."""


@dataclass
class SymbolicInputs:
    """The fakes of some tensors; equal sizes are one symbol if `duck`."""

    facts: ShapeFacts = field(default_factory=ShapeFacts)
    duck: bool = False
    fakes: list[Any] = field(default_factory=list)
    _symbols: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        tensors: Sequence[torch.Tensor],
        chosen: Chosen = lambda number, dim: True,
        *,
        duck: bool = False,
    ) -> SymbolicInputs:
        self = cls(duck=duck)
        mode = FakeMode(self.facts)
        for number, tensor in enumerate(tensors):
            sizes = [
                self._size(size) if size > 1 and chosen(number, dim) else size
                for dim, size in enumerate(tensor.shape)
            ]
            fake = mode.fake_distinct(tensor, sizes, strides_of(tensor, sizes))
            self.fakes.append(fake)
        return self

    def _size(self, hint: int) -> Any:
        if not self.duck or hint not in self._symbols:
            self._symbols[hint] = symbolic_int(self.facts, self.facts.size(hint))
        return self._symbols[hint]

    def values(self, tensors: Sequence[torch.Tensor]) -> dict[str, int]:
        """By symbol: its value for inputs of other sizes."""
        found = {}
        for fake, tensor in zip(self.fakes, tensors, strict=True):
            for size, number in zip(fake.shape, tensor.shape, strict=True):
                if not isinstance(size, int) and not index_of(size).is_constant:
                    found[str(size)] = number
        return found


def strides_of(tensor: torch.Tensor, sizes: Sequence[Any]) -> list[Any]:
    """The strides of `tensor` where its sizes are `sizes`: products of these where they are."""
    known: dict[int, Any] = {1: 1}
    strides: list[Any] = list(tensor.stride())
    order = sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), tensor.shape[d]))
    for dim in order:
        strides[dim] = known.get(tensor.stride(dim), tensor.stride(dim))
        if tensor.shape[dim] > 1:
            known[tensor.stride(dim) * tensor.shape[dim]] = strides[dim] * sizes[dim]
    return strides
