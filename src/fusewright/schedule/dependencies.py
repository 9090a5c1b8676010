"""The order that steps must keep, by the buffers they read, write and overwrite, with
reachability.

Edges run from the writer of a buffer to its readers, from readers of memory to a later step that
overwrites it, and from that step to whoever reads the memory after it (in the program's order). A
scatter overwrites its base. Steps with effects outside of memory come in the program's order, and
all steps behind the one that finds out a size, which they may depend on, stay behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusewright.schedule.effects import Effects


class Dependencies:
    """A graph over numbered steps that can be contracted; keeps the set of all predecessors of each
    as bits.
    """

    def __init__(self, steps: Iterable[Effects], memory: Callable[[str], str]) -> None:
        """`memory` gives the owner of a buffer's memory: aliases are overwritten together."""
        self.direct: list[set[int]] = []
        self.bits: list[int] = []
        self.before: list[int] = []
        """The steps that must come before each step, as bits."""

        written: dict[str, int] = {}
        changed: dict[str, int] = {}
        readers: dict[str, list[int]] = {}
        ordered: set[int] = set()
        barrier: set[int] = set()
        for number, effect in enumerate(steps):
            direct = set(barrier)
            for name in (*effect.reads, *effect.overwrites):
                earlier = (written.get(name), changed.get(memory(name)))
                direct.update(step for step in earlier if step is not None)
            for name in effect.overwrites:
                direct.update(readers.pop(memory(name), ()))
            if effect.is_ordered:
                direct.update(ordered)
                ordered = {number}
            if effect.is_barrier:
                barrier = {number}
            direct.discard(number)
            for name in (*effect.reads, *effect.overwrites):
                readers.setdefault(memory(name), []).append(number)
            written.update(dict.fromkeys(effect.writes, number))
            changed.update((memory(name), number) for name in effect.overwrites)
            before = 0
            for other in direct:
                before |= self.before[other] | self.bits[other]
            self.direct.append(direct)
            self.bits.append(1 << number)
            self.before.append(before)

    def must_precede(self, first: int, second: int) -> bool:
        """Whether `first` has to come before `second`, directly or through others."""
        return bool(self.before[second] & self.bits[first])

    def between(self, first: int, second: int) -> bool:
        """Whether a third step has to come after `first` and before `second`."""
        bits = self.bits[first]
        return any(self.before[step] & bits for step in self.direct[second] if step != first)

    def contract(self, keep: int, gone: int) -> None:
        """Make one step of two; both must not be joined through a third."""
        bits = self.bits[keep] | self.bits[gone]
        before = (self.before[keep] | self.before[gone]) & ~bits
        self.bits[keep] = bits
        self.direct[keep] = (self.direct[keep] | self.direct[gone]) - {keep, gone}
        self.direct[gone] = set()
        for direct in self.direct:
            if gone in direct:
                direct.discard(gone)
                direct.add(keep)
        reaches = before | bits
        self.before = [mask | reaches if mask & bits else mask for mask in self.before]
        self.before[keep] = before
