"""What is open in the results of a GPU's kernels, which eager runs there as compiled code does, and
what they do for reasons that no rounding tells: one of the ways in which they may come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from fusewright import torch_compat

SELECTIONS: Final = frozenset(str.split("sort topk kthvalue median nanmedian mode"))
"""Operators that give elements along a dimension, and their places: any of equal ones."""

MEDIANS: Final = frozenset(str.split("median nanmedian"))
"""Selections that are made of a sort where they are of all elements."""

SHORT: Final = 32
"""Elements of rows that are sorted by comparing them, unless the sort is stable. Longer ones are
sorted by their bits: a NaN whose sign bit is set, which a copy keeps and arithmetic clears, comes
before all numbers.
"""

ATOMIC_SUMS: Final = frozenset(str.split("scatter_add index_add"))
"""Operators that add by atomics, in float32 where compiled code adds half types."""

LEAST_OF_ATOMICS: Final = torch.finfo(torch.float32).smallest_normal
"""What is nearer to 0 counts as 0 in atomics of float32; of half types, bfloat16 has such."""


class GpuChoices:
    """One way in which kernels may choose, told by `seed`. `narrowest`: the type of least precision
    in a program.
    """

    def __init__(self, seed: int, narrowest: torch.dtype, generator: torch.Generator) -> None:
        self._nan_first = seed % 2 == 1
        self._drops_least = seed % 2 == 1 and narrowest is torch.bfloat16
        self._generator = generator

    def decides(self, name: str) -> bool:
        """Whether `result` is to be asked for the result of an operator."""
        return name in SELECTIONS or name == "_unique2"

    def result(self, name: str, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operator that it decides about."""
        if name == "_unique2":
            return self._unique(function(*args, **kwargs))
        names = [argument.name for argument in torch_compat.operator_arguments(function)]
        named = dict(zip(names, args, strict=False)) | kwargs
        value = args[0]
        if "dim" not in names and name in MEDIANS and self._nan_first and value.numel() > SHORT:
            return _median(value, ignores_nan=name == "nanmedian")
        dim = named.get("dim", -1)
        if "dim" not in names or not value.dim() or not value.shape[dim]:
            return function(*args, **kwargs)
        elements, places = self._selected(function, args, kwargs, named)
        is_by_bits = name == "sort" and (value.shape[dim] > SHORT or named.get("stable"))
        if self._nan_first and is_by_bits:
            order = _nan_moved(elements, dim, bool(named.get("descending")))
            elements, places = elements.gather(dim, order), places.gather(dim, order)
        return elements, places

    def summands(self, name: str, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments of an operator as they count in its sum."""
        if name not in ATOMIC_SUMS or not self._drops_least:
            return args
        return [_without_least(arg) for arg in args]

    def _selected(
        self, function: Any, args: Sequence[Any], kwargs: dict[str, Any], named: dict[str, Any]
    ) -> Any:
        """A selection of what is shuffled along the dimension, with indices into what is not: of
        equal elements it may take another one.
        """
        if named.get("stable"):
            return function(*args, **kwargs)
        value, dim = args[0], named.get("dim", -1)
        order = torch.randperm(value.shape[dim], generator=self._generator)
        elements, places = function(value.index_select(dim, order), *args[1:], **kwargs)
        return elements, order[places]

    def _unique(self, result: Any) -> Any:
        """Different elements in order, where each of them went, and how many there were."""
        if not self._nan_first:
            return result
        elements, places, counts = result
        count = int(elements.isnan().sum())
        if places.numel():
            places = (places + count) % elements.numel()
        return elements.roll(count), places, counts.roll(count)


def _median(value: torch.Tensor, ignores_nan: bool) -> torch.Tensor:
    """The median of all elements, of which NaN were sorted to the beginning."""
    count = int(value.isnan().sum())
    ordered = value.flatten().sort().values.roll(count)
    if ignores_nan:
        return ordered[(ordered.numel() - 1 - count) // 2].clone()
    return torch.where(ordered[-1].isnan(), ordered[-1], ordered[(ordered.numel() - 1) // 2])


def _nan_moved(elements: torch.Tensor, dim: int, descending: bool) -> torch.Tensor:
    """Where the elements of sorted rows are once their NaN stand at the other end."""
    length = elements.shape[dim]
    count = elements.isnan().sum(dim, keepdim=True)
    shape = [1] * elements.dim()
    shape[dim] = length
    return (torch.arange(length).view(shape) + (count if descending else length - count)) % length


def _without_least(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return torch.where(value.abs() < LEAST_OF_ATOMICS, 0 * value, value)
