"""Nested containers: tuples, lists and dicts of tensors and of anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

Kinds = type | tuple[type, ...]


def members(value: Any, kinds: Kinds) -> Iterator[Any]:
    """The objects of some classes in containers, in order."""
    if isinstance(value, kinds):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from members(item, kinds)
    elif isinstance(value, dict):
        for item in value.values():
            yield from members(item, kinds)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in containers, in order."""
    return members(value, torch.Tensor)


def mapped(function: Callable[[Any], Any], value: Any, kinds: Kinds = torch.Tensor) -> Any:
    """A copy of containers in which each object of some classes is replaced by what `function`
    gives for it.
    """
    if isinstance(value, kinds):
        return function(value)
    if isinstance(value, tuple | list):
        return _alike(value, [mapped(function, item, kinds) for item in value])
    if isinstance(value, dict):
        return {key: mapped(function, item, kinds) for key, item in value.items()}
    return value


class _Extents(tuple[Any, ...]):
    """A `torch.Size` in which something else stands for numbers."""


def _alike(value: Any, items: list[Any]) -> Any:
    """Other items in a container of the same class."""
    cls = type(value)
    if cls is list:
        return items
    if cls is tuple:
        return tuple(items)
    if cls is torch.Size or cls is _Extents:
        is_size = all(isinstance(item, int | torch.SymInt) for item in items)
        return torch.Size(items) if is_size else _Extents(items)
    return cls._make(items) if hasattr(cls, "_make") else cls(items)
