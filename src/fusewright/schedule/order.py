"""The order of the steps: the program's own, or one that frees memory first where that lowers the
peak.

Both are made and the one with the lower peak, by hints, is taken; the program's order wins a tie,
so that steps stay near the data that they share. Where launches that do the same become one, casts
of weights stand together at the beginning, and those of their gradients at the end, as long as that
hardly raises the peak. What is added to inputs comes last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fusewright.schedule.batch import is_plain
from fusewright.schedule.fusion import Graph
from fusewright.schedule.live_memory import LiveMemory, as_written, list_schedule, peak_of

MORE_FOR_BATCHES: Final = 0.01
"""By how much of the peak it may be higher so that launches become one."""


def order_steps(graph: Graph) -> list[int]:
    """The numbers of the steps that are left, in an order that respects their dependencies."""
    start = LiveMemory.before(graph)
    written = as_written(start.copy())
    frugal = list_schedule(start.copy(), lambda number, memory: memory.frugality(number))
    best, peak = written, peak_of(start.copy(), written)
    if frugal != written and (lower := peak_of(start.copy(), frugal)) < peak:
        best, peak = frugal, lower
    for together in _together(graph, best):
        if peak_of(start.copy(), together) <= peak * (1 + MORE_FOR_BATCHES):
            return together
    return best


def sums_last(
    graph: Graph, order: Sequence[int], mutations: Sequence[tuple[str, str]]
) -> list[int]:
    """`order` with what is added to inputs behind everything that does not need it: nothing that
    may raise comes then, so that it is added in the inputs' own memory.
    """
    replaced = {new_value for new_value, _ in mutations}
    last: list[int] = []
    for place in reversed(range(len(order))):
        nest = graph.nest(order[place])
        if nest is None or replaced.isdisjoint(nest.written):
            continue
        (piece, *others) = nest.pieces
        if others or (piece.kind, piece.mode) != ("scatter", "add"):
            continue
        behind = (number for number in order[place + 1 :] if number not in last)
        if not any(graph.dependencies.must_precede(order[place], number) for number in behind):
            replaced.add(piece.base)
            last.append(order[place])
    return [number for number in order if number not in last] + last[::-1]


def _together(graph: Graph, order: Sequence[int]) -> Iterator[list[int]]:
    """Orders that have steps of which a launch may do several side by side: before everything else
    what needs no other step, and behind it what no step needs; or only the former, or the latter.
    """
    alike = {number for number in order if _may_be_batched(graph, number)}
    needed = {before for number in order for before in graph.dependencies.direct[number]}
    first = {number for number in alike if not graph.dependencies.direct[number]}
    last = alike - needed - first
    for begin, end in ((first, last), (first, set()), (set(), last)):
        if begin or end:
            places = {number: (number in end) - (number in begin) for number in order}
            yield sorted(order, key=places.__getitem__)


def _may_be_batched(graph: Graph, number: int) -> bool:
    """Whether a launch may do the work of a step and that of others like it."""
    nest = graph.nest(number)
    if nest is None or not graph.analysis.limits_of(nest.device).batches_launches:
        return False
    return len(nest.outer) == 1 and is_plain(nest)
