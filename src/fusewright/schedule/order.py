"""The order of the steps: the program's own, or one that frees memory first where that lowers the
peak.

Both are made and the one with the lower peak, by hints, is taken; the program's order wins a tie,
so that steps stay near the data that they share. Where launches that do the same become one, casts
of weights stand together at the beginning, and those of their gradients at the end, as long as that
hardly raises the peak. What is added to inputs comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from fusewright.records import record, replace
from fusewright.schedule.batch import is_plain
from fusewright.schedule.fusion import Graph
from fusewright.schedule.nest import Nest, step_effects

MORE_FOR_BATCHES: Final = 0.01
"""By how much of the peak it may be higher so that launches become one."""


def order_steps(graph: Graph, released: frozenset[str] = frozenset()) -> list[int]:
    """The numbers of the steps that are left, in an order that respects their dependencies.
    `released`: inputs that go when nobody reads them any more.
    """
    alive = [number for number, step in enumerate(graph.steps) if step is not None]
    start = LiveMemory.before(graph, alive, released)
    as_written = _list_schedule(start.copy(), alive, lambda number, memory: (number, 0))
    frugal = _list_schedule(start.copy(), alive, lambda number, memory: memory.frugality(number))
    best, peak = as_written, _peak(start.copy(), as_written)
    if frugal != as_written and (lower := _peak(start.copy(), frugal)) < peak:
        best, peak = frugal, lower
    for together in _together(graph, best):
        if _peak(start.copy(), together) <= peak * (1 + MORE_FOR_BATCHES):
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


@record(frozen=False)
class LiveMemory:
    """The buffers alive while steps run, but for constants and inputs that others hold."""

    graph: Graph
    made: dict[int, tuple[str, ...]]
    """Buffers in memory that each step makes."""

    used: dict[int, tuple[str, ...]]
    """Buffers in memory that each step reads."""

    waiting: dict[str, set[int]]
    """Steps that have still to read each of them."""

    @staticmethod
    def before(graph: Graph, alive: Sequence[int], released: frozenset[str]) -> LiveMemory:
        """Before the first step. `released`: inputs that go when nobody reads them any more."""
        stored: dict[int, tuple[str, ...]] = {}
        used: dict[int, tuple[str, ...]] = {}
        waiting: dict[str, set[int]] = {}
        for number in alive:
            step = graph.steps[number]
            assert step is not None
            effect = step_effects(step, graph.analysis)
            stored[number] = tuple(n for n in effect.writes if _is_stored(graph, number, n))
            reads = dict.fromkeys((*effect.reads, *effect.overwrites))
            used[number] = tuple(
                name
                for name in reads
                if name in released or graph.writer.get(name, number) != number
            )
            for name in used[number]:
                waiting.setdefault(name, set()).add(number)
        return LiveMemory(graph, stored, used, waiting)

    def copy(self) -> LiveMemory:
        """A copy, on which steps can run without changing this one."""
        return replace(self, waiting={name: set(steps) for name, steps in self.waiting.items()})

    def growth(self, number: int) -> int:
        """Bytes by which memory is larger after a step than before it."""
        size = self.graph.analysis.bytes
        freed = sum(size(name) for name in self.used[number] if self._dies(name, number))
        return self.needs(number) - freed

    def needs(self, number: int) -> int:
        """Bytes of what a step makes, which are there before what it reads is freed."""
        return sum(map(self.graph.analysis.bytes, self.made[number]))

    def frugality(self, number: int) -> tuple[int, int]:
        """What to order steps by: first those that leave less memory alive, the one that needs the
        least for it foremost, since it makes room for the others.
        """
        growth = self.growth(number)
        return (0, self.needs(number)) if growth < 0 else (1, growth)

    def run(self, number: int) -> None:
        """The step has run."""
        for name in self.used[number]:
            self.waiting[name].discard(number)

    def _dies(self, name: str, number: int) -> bool:
        return name not in self.graph.kept and self.waiting[name] == {number}


def _is_stored(graph: Graph, number: int, name: str) -> bool:
    """Whether a buffer that a step makes is seen by others."""
    if not isinstance(graph.steps[number], Nest):
        return True
    return name in graph.kept or not graph.readers.get(name, set()) <= {number}


def _list_schedule(
    memory: LiveMemory, alive: Sequence[int], priority: Callable[[int, LiveMemory], tuple[int, int]]
) -> list[int]:
    """An order of the steps that always continues with the ready step of lowest priority; ties go
    to the lowest number.
    """
    dependencies = memory.graph.dependencies
    waiting = {number: len(dependencies.direct[number]) for number in alive}
    followers: dict[int, list[int]] = {number: [] for number in alive}
    for number in alive:
        for before in dependencies.direct[number]:
            followers[before].append(number)
    ready = [number for number in alive if not waiting[number]]
    order: list[int] = []
    while ready:
        number = min(ready, key=lambda step: (priority(step, memory), step))
        ready.remove(number)
        order.append(number)
        memory.run(number)
        for follower in followers[number]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    if len(order) != len(alive):
        raise ValueError("the steps depend on each other in a circle")
    return order


def _peak(memory: LiveMemory, order: Sequence[int]) -> int:
    """The most bytes alive at once in this order."""
    alive = peak = 0
    for number in order:
        growth = memory.growth(number)
        peak = max(peak, alive + memory.needs(number))
        alive += growth
        memory.run(number)
    return peak
