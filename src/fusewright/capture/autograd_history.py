"""The autograd history of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge


def history(tensors: Iterable[torch.Tensor]) -> set[Any]:
    """The nodes that a gradient of `tensors` passes, one for each leaf among them."""
    waiting: list[Any] = [
        get_gradient_edge(tensor).node for tensor in tensors if tensor.requires_grad
    ]
    nodes = set(waiting)
    while waiting:
        following = {node for node, _ in waiting.pop().next_functions if node is not None} - nodes
        nodes |= following
        waiting += following
    return nodes


def leaves(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in which the history of `tensors` begins."""
    return [node.variable for node in history(tensors) if hasattr(node, "variable")]
