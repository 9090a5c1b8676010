"""Moves the wait for a collective to where its result is first read, so that what stands between
is computed meanwhile.

    all_reduce = fusewright.all_reduce(x)       all_reduce = fusewright.all_reduce(x)
    arrived = fusewright.arrived(all_reduce)    sin = aten.sin(y)
    sin = aten.sin(y)                     ->    arrived = fusewright.arrived(all_reduce)
    add = aten.add(arrived, sin)                add = aten.add(arrived, sin)

Collectives themselves stay in their order.
"""

from __future__ import annotations

from torch import fx

from fusewright.collectives import is_wait


def sink_waits(graph: fx.Graph) -> int:
    """Move each wait before its first reader. Gives how many were moved."""
    positions = {node: position for position, node in enumerate(graph.nodes)}
    moved = 0
    for node in reversed(positions):
        if is_wait(node.target) and node.users:
            first = min(node.users, key=positions.__getitem__)
            if first is not node.next:
                first.prepend(node)
                positions[node] = positions[first]  # what it reads comes before
                moved += 1
    return moved
