"""Removes the nodes that nothing reads.

empty = aten.empty([0])                 (nothing left)
add = aten.add(x, 1)             ->     add = aten.add(x, 1)
index = aten.index(x, [i])              index = aten.index(x, [i])
_assert_async(x)                        _assert_async(x)
return (add,)                           return (add,)

What a program does beside its results stays: asserts, random draws, since the next draw depends on
how many there were, numbers found in data of which something is promised, and what may raise for
the values that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.aot.symbols import PROMISED
from fusewright.ir.raising import DIVISIONS, OPERATORS, operator_name
from fusewright.torch_compat import OpOverload


def remove_dead_code(graph: fx.Graph, tangents: Iterable[fx.Node] = ()) -> int:
    """Erase, last first, each unread node of a functional graph; inputs stay. Gives how many were
    erased.

    What depends on `tangents` computes gradients, of what did not raise.
    """
    of_gradients = dependents(graph, tangents)
    erased = 0
    for node in reversed(list(graph.nodes)):
        if node.users or node.op not in ("call_function", "get_attr") or has_effect(node):
            continue
        if node in of_gradients or not may_raise(node):
            graph.erase_node(node)
            erased += 1
    return erased


def dependents(graph: fx.Graph, nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """`nodes`, and all that is computed from them."""
    reached = set(nodes)
    if reached:
        for node in graph.nodes:
            if any(value in reached for value in node.all_input_nodes):
                reached.add(node)
    return reached


def has_effect(node: fx.Node) -> bool:
    """Whether a node does something beside its results."""
    if node.meta.get(PROMISED):
        return True
    if isinstance(node.target, OpOverload):
        return torch_compat.has_effect(node.target)
    return getattr(node.target, "has_effect", False)


def is_wanted(node: fx.Node) -> bool:
    """Whether a node of a graph without dead code is computed for more than its results."""
    return has_effect(node) or (not node.users and may_raise(node))


def may_raise(node: fx.Node) -> bool:
    """Whether a node raises for some values of its arguments."""
    if not isinstance(node.target, OpOverload):
        return getattr(node.target, "may_raise", False)
    name = operator_name(str(node.target))
    if name in DIVISIONS:
        return _is_whole(node.meta.get("val")) and not _is_safe_divisor(node.args[1])
    return name in OPERATORS


def _is_whole(value: object) -> bool:
    """Whether a result holds integers."""
    if not isinstance(value, torch.Tensor):
        return False
    return not (value.is_floating_point() or value.is_complex())


def _is_safe_divisor(divisor: object) -> bool:
    """Whether a divisor is known and not 0."""
    return isinstance(divisor, int | float) and divisor != 0
