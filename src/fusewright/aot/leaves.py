"""Containers with leaves in place of their tensors: (x, [y], 2) is (Leaf(0), [Leaf(1)], 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.aot.specs import Leaf
from fusewright.containers import mapped, members


def with_leaves(
    value: Any, leaves: list[Any], kinds: tuple[type, ...] = (torch.Tensor, fx.Node)
) -> Any:
    """`value` with what is of these `kinds` moved into `found` and replaced by its `Leaf`."""

    def leaf(value: Any) -> Leaf:
        leaves.append(value)
        return Leaf(len(leaves) - 1)

    return mapped(leaf, value, kinds)


def leaves(structure: Any) -> Iterator[Leaf]:
    """The leaves in containers."""
    return members(structure, Leaf)


def filled(structure: Any, values: Sequence[Any]) -> Any:
    """The containers with values in place of their leaves."""
    return mapped(lambda leaf: values[leaf.index], structure, Leaf)


def all_as_leaves(value: Any, leaves: list[Any]) -> Any:
    """`value` with all that is no container moved into `found` and replaced by its `Leaf`; named
    tuples are none.
    """
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple([all_as_leaves(item, leaves) for item in value])
    if isinstance(value, list):
        return [all_as_leaves(item, leaves) for item in value]
    if isinstance(value, dict):
        return {name: all_as_leaves(item, leaves) for name, item in value.items()}
    leaves.append(value)
    return Leaf(len(leaves) - 1)
