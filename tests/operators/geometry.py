"""Sizes, strides and types that fakes give, beside eager's: for arguments in any layout, and for
whatever sizes the guards of symbolic ones admit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from fusewright.fake import FakeMode
from fusewright.ir.sizes import size_symbol
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import index_of
from tests.symbolic_inputs import SymbolicInputs

OTHER_SIZES = range(2, 12)

Geometry = tuple[tuple[int, ...], tuple[int, ...] | None, torch.dtype]


def geometries(result: Any) -> list[Geometry]:
    """Size, strides and type of each tensor; strides of single elements mean nothing."""
    flat = result if isinstance(result, (tuple, list)) else (result,)
    return [
        (tuple(tensor.shape), tensor.stride() if tensor.numel() > 1 else None, tensor.dtype)
        for tensor in flat
        if isinstance(tensor, Tensor)
    ]


def without_single_elements(geometry: Geometry) -> Geometry:
    """A geometry without the strides of dimensions of one element, which mean nothing either."""
    size, strides, dtype = geometry
    if strides is not None:
        strides = tuple(s for n, s in zip(size, strides, strict=True) if n != 1)
    return size, strides, dtype


def fake_geometries(function: Callable[..., Any], args: Any, kwargs: Any) -> list[Geometry]:
    """The geometries of a call's results, of fakes of its tensors."""
    mode = FakeMode()

    def fake(value: Any) -> Any:
        return mode.fake(value) if isinstance(value, Tensor) else value

    args, kwargs = tree_map(fake, (tuple(args), kwargs))
    with torch.no_grad(), mode:
        return geometries(function(*args, **kwargs))


def laid_out_anew(choice: random.Random, value: Any) -> Any:
    """A tensor of the same sizes in memory of another layout: its dimensions in another order, its
    rows with gaps, or one of its dimensions expanded.
    """
    if not isinstance(value, Tensor) or value.dim() == 0:
        return value
    tensor = value.detach()
    match choice.choice(("permuted", "permuted", "gaps", "expanded", "same")):
        case "permuted":
            order = choice.sample(range(tensor.dim()), tensor.dim())
            return tensor.permute(order).contiguous().permute(np.argsort(order).tolist())
        case "gaps":
            wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
            return wide[..., ::2].copy_(tensor)
        case "expanded":
            dim = choice.randrange(tensor.dim())
            return tensor.narrow(dim, 0, 1).expand(tensor.shape) if tensor.shape[dim] else tensor
    return tensor


def in_double(value: Any) -> Any:
    """A float32 tensor as one of another type, which operators promote."""
    is_float = isinstance(value, Tensor) and value.dtype is torch.float32
    return value.double() if is_float else value


class SymbolicCall:
    """A call on fakes of symbolic sizes, to be held against eager for other sizes."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
        self.function = function
        self.leaves, self.structure = tree_flatten((tuple(args), kwargs))
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        inputs = SymbolicInputs.of(self.tensors)
        self.facts: ShapeFacts = inputs.facts
        self.fakes = inputs.fakes
        with torch.no_grad(), self.fakes[0].fake_mode:
            self.results = self.run(self.fakes)

    def run(self, tensors: Sequence[Any]) -> list[Tensor]:
        """The tensors among the results, with other tensors as arguments."""
        arguments = iter(tensors)
        leaves = [next(arguments) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.structure)
        results = tree_leaves(self.function(*args, **kwargs))
        return [result for result in results if isinstance(result, Tensor)]

    def sizes(self, choice: random.Random) -> dict[str, int] | None:
        """Other sizes that the guards admit; None where those drawn are not."""
        names = self.facts.hints
        resolved = {name: self.facts.resolve(size_symbol(name).index) for name in names}
        free = sorted({symbol.name for index in resolved.values() for symbol in index.free()})
        drawn = {name: choice.choice(OTHER_SIZES) for name in free}
        values = {name: index.evaluate(drawn) for name, index in resolved.items()}
        admitted = all(assumption.relation.holds(values) for assumption in self.facts.assumptions)
        return values if admitted and min(values.values(), default=2) >= 2 else None

    def check(self, values: dict[str, int]) -> None:
        """Eager's results have the sizes and strides that the fakes' have for these values."""
        tensors = [
            self.tensor(fake, like, values)
            for fake, like in zip(self.fakes, self.tensors, strict=True)
        ]
        with torch.no_grad():
            try:
                expected = self.run(tensors)
            except IndexError:
                return  # a number in the sample points past the end of a smaller dimension
        assert len(expected) == len(self.results)
        for fake, real in zip(self.results, expected, strict=True):
            assert self.numbers(fake.shape, values) == list(real.shape), values
            assert fake.dtype == real.dtype
            if real.numel():
                actual = self.numbers(fake.stride(), values)
                strides = zip(actual, real.stride(), real.shape, strict=True)
                assert all(a == b or size == 1 for a, b, size in strides), (
                    f"strides {fake.stride()}, for {values} {real.stride()}"
                )

    def numbers(self, extents: Sequence[Any], values: dict[str, int]) -> list[int]:
        return [self.facts.resolve(index_of(extent)).evaluate(values) for extent in extents]

    def tensor(self, fake: Any, like: Tensor, values: dict[str, int]) -> Tensor:
        """A tensor of another size: of one number of the sample's, or of zeros, which are indices
        nearly everywhere.
        """
        sizes, strides = (self.numbers(extents, values) for extents in (fake.shape, fake.stride()))
        result = torch.empty_strided(sizes, strides, dtype=like.dtype)
        if like.is_floating_point() and like.numel():
            return result.fill_(like.detach().flatten()[0])
        return result.zero_()
