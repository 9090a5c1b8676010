"""Removes the nodes that nothing reads.

empty = aten.empty([0])                 (nothing left)
add = aten.add(x, 1)             ->     add = aten.add(x, 1)
return (add,)                           return (add,)
"""

from __future__ import annotations

from torch import fx


def remove_dead_code(graph: fx.Graph) -> int:
    """Erase, last first, each unread node of a functional graph; inputs stay. Gives how many were
    erased.
    """
    erased = 0
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr"):
            graph.erase_node(node)
            erased += 1
    return erased
