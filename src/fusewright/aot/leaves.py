"""Containers with leaves in place of their tensors: (x, [y], 2) is (Leaf(0), [Leaf(1)], 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.aot.specs import Leaf


def with_leaves(
    value: Any, found: list[Any], kinds: tuple[type, ...] = (torch.Tensor, fx.Node)
) -> Any:
    """`value` with what is of these `kinds` moved into `found` and replaced by its `Leaf`."""
    match value:
        case _ if isinstance(value, kinds):
            found.append(value)
            return Leaf(len(found) - 1)
        case tuple() | list():
            return type(value)([with_leaves(one, found, kinds) for one in value])
        case dict():
            return {name: with_leaves(one, found, kinds) for name, one in value.items()}
        case _:
            return value


def leaves(structure: Any) -> Iterator[Leaf]:
    """The leaves in containers."""
    match structure:
        case Leaf():
            yield structure
        case tuple() | list():
            for one in structure:
                yield from leaves(one)
        case dict():
            for one in structure.values():
                yield from leaves(one)


def filled(structure: Any, values: Sequence[Any]) -> Any:
    """The containers with values in place of their leaves."""
    match structure:
        case Leaf(index):
            return values[index]
        case tuple() | list():
            return type(structure)([filled(one, values) for one in structure])
        case dict():
            return {name: filled(one, values) for name, one in structure.items()}
        case _:
            return structure
