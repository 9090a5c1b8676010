"""The memory that is alive while steps run in an order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from fusewright.records import record, replace
from fusewright.schedule.fusion import Graph
from fusewright.schedule.nest import Nest, step_effects


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
    def before(graph: Graph) -> LiveMemory:
        """Before the first step."""
        released = graph.analysis.released
        stored: dict[int, tuple[str, ...]] = {}
        used: dict[int, tuple[str, ...]] = {}
        waiting: dict[str, set[int]] = {}
        for number in graph.left:
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

    def takes_over(self, number: int) -> int:
        """Bytes of what a nest makes that are as many as those of something that ends with it,
        whose memory it may get.
        """
        if not isinstance(self.graph.steps[number], Nest):
            return 0
        size = self.graph.analysis.bytes
        ends = Counter(size(name) for name in self.used[number] if self._dies(name, number))
        made = Counter(map(size, self.made[number]))
        return sum((made & ends).elements())

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


def as_written(memory: LiveMemory) -> list[int]:
    """The program's own order of the steps."""
    return list_schedule(memory, lambda number, memory: (number, 0))


def list_schedule(
    memory: LiveMemory, priority: Callable[[int, LiveMemory], tuple[int, int]]
) -> list[int]:
    """An order of the steps that always continues with the ready step of lowest priority; ties go
    to the lowest number.
    """
    dependencies, steps = memory.graph.dependencies, memory.graph.left
    waiting = {number: len(dependencies.direct[number]) for number in steps}
    followers: dict[int, list[int]] = {number: [] for number in steps}
    for number in steps:
        for before in dependencies.direct[number]:
            followers[before].append(number)
    ready = [number for number in steps if not waiting[number]]
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
    if len(order) != len(steps):
        raise ValueError("the steps depend on each other in a circle")
    return order


def peak_of(memory: LiveMemory, order: Sequence[int]) -> int:
    """The most bytes alive at once in this order."""
    alive = peak = 0
    for number in order:
        growth = memory.growth(number)
        peak = max(peak, alive + memory.needs(number))
        alive += growth
        memory.run(number)
    return peak


@record
class Room:
    """Memory that may be held longer than it is needed, while no more is alive at any time than
    was at the peak.
    """

    places: dict[int, int]
    """Of each step in the program's own order."""

    held: list[int]
    """Bytes alive while the step at each place runs."""

    sizes: dict[str, int]
    """Bytes of the buffers that go when nobody reads them any more."""

    peak: int

    @staticmethod
    def of(graph: Graph) -> Room:
        """In the order of the steps as they are now."""
        memory = LiveMemory.before(graph)
        order = as_written(memory.copy())
        sizes = {
            name: graph.analysis.bytes(name) for name in memory.waiting if name not in graph.kept
        }
        held, total = [], 0
        for number in order:
            held.append(total + memory.needs(number) - memory.takes_over(number))
            total += memory.growth(number)
            memory.run(number)
        places = {number: place for place, number in enumerate(order)}
        return Room(places, held, sizes, max(held, default=0))

    def take(self, names: Iterable[str], first: int, second: int) -> bool:
        """Hold buffers from one step to another, if there is room for them; whether there is."""
        size = sum(self.sizes.get(name, 0) for name in names)
        between = range(self.places[first] + 1, self.places[second])
        if any(self.held[place] + size > self.peak for place in between):
            return False
        for place in between:
            self.held[place] += size
        return True
