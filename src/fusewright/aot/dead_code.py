"""Removes the nodes that nothing reads.

empty = aten.empty([0])                 (nothing left)
add = aten.add(x, 1)             ->     add = aten.add(x, 1)
_assert_async(x)                        _assert_async(x)
return (add,)                           return (add,)

What a program does beside its results stays: asserts, and random draws, since the next draw depends
on how many there were.
"""

from __future__ import annotations

from torch import fx

from fusewright import torch_compat
from fusewright.torch_compat import OpOverload


def remove_dead_code(graph: fx.Graph) -> int:
    """Erase, last first, each unread node of a functional graph; inputs stay. Gives how many were
    erased.
    """
    erased = 0
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr") and not has_effect(node):
            graph.erase_node(node)
            erased += 1
    return erased


def has_effect(node: fx.Node) -> bool:
    """Whether a node does something beside its results."""
    return isinstance(node.target, OpOverload) and torch_compat.has_effect(node.target)
