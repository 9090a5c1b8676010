"""Where the autograd history of tensors leads to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge


def history(tensors: Iterable[torch.Tensor]) -> set[Any]:
    """The nodes that a gradient of `tensors` passes, one for each leaf among them."""
    waiting: list[Any] = [get_gradient_edge(one).node for one in tensors if one.requires_grad]
    seen = set(waiting)
    while waiting:
        following = {node for node, _ in waiting.pop().next_functions if node is not None} - seen
        seen |= following
        waiting += following
    return seen


def leaves(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in which the history of `tensors` begins."""
    return [node.variable for node in history(tensors) if hasattr(node, "variable")]
