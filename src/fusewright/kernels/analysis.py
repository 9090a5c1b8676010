"""Facts about a group for kernel targets: dependences, steps of accesses, amount of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Final

from fusewright.ir.group import Group, Reduce, ScanStore, Stage, action_roots
from fusewright.ir.index import Compound, Index, LoopSymbol, Symbol, integer
from fusewright.ir.value import (
    IndexValue,
    Indirect,
    Load,
    Random,
    Value,
    children,
    node_cost,
    postorder,
)
from fusewright.records import record

ASSUMED_EXTENT = 64
"""Stands for a symbolic extent where only profit depends on it."""

SizeHints = Mapping[str, int | float]
"""Sizes by name, as they were when compiling. Only profit may depend on them."""

NO_HINTS: Final[SizeHints] = {}

# Values
# ----------------------------------------------------------------------------------------------


def stage_values(stage: Stage) -> Iterator[Value]:
    """Every value of a stage once, each after what it is made from."""
    return postorder(action_roots(*stage.actions))


def stored_in(*stages: Stage) -> frozenset[str]:
    """The buffers and locals that stages change."""
    targets: set[str] = set()
    for action in (action for stage in stages for action in stage.actions):
        targets.update(action.targets if isinstance(action, Reduce) else (action.buffer,))
    return frozenset(targets)


def loaded_in(*stages: Stage) -> frozenset[str]:
    """The buffers and locals that stages read."""
    values = (value for stage in stages for value in stage_values(stage))
    return frozenset(value.buffer for value in values if isinstance(value, Load))


def extent_hint(symbol: LoopSymbol, hints: SizeHints = NO_HINTS) -> int:
    """The number of turns of a loop, guessed where it depends on a size that has no hint."""
    count = symbol.extent
    if count.is_constant:
        return int(count)
    known = all(size.name in hints for size in count.free())
    return count.evaluate(hints) if known else ASSUMED_EXTENT


class Dependences:
    """The loop variables that each value depends on, computed once a value."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[Symbol]] = {}

    def of(self, value: Value) -> frozenset[Symbol]:
        """The loop variables in the value's indices, in those of what it is made from, and in
        loaded indices."""
        symbols = self._known.get(id(value))
        if symbols is None:
            for node in postorder((value,)):
                if id(node) not in self._known:
                    self._known[id(node)] = self._of_node(node)
            symbols = self._known[id(value)]
        return symbols

    def _of_node(self, node: Value) -> frozenset[Symbol]:
        symbols = frozenset[Symbol]().union(*(self._known[id(child)] for child in children(node)))
        match node:
            case Load(index=index) | IndexValue(index=index) | Random(position=index):
                return symbols | {
                    symbol for symbol in index.free() if isinstance(symbol, LoopSymbol)
                }
        return symbols


def stride(index: Index, symbol: Symbol, step: int = 1) -> Index | None:
    """The step of `index` along `symbol` within runs of `step` elements that start at a multiple
    of `step`.

    `(i // 64).stride` is unknown, but for runs of 16 it is 0, and that of `i % 64` is 1.
    """
    plain = index.stride(symbol)
    if plain is not None or step == 1:
        return plain
    total = integer(0)
    for coefficient, atoms in index.terms:
        involved = [
            a for a in atoms if a == symbol or (isinstance(a, Compound) and symbol in a.free())
        ]
        if not involved:
            continue
        if len(involved) > 1:
            return None
        own = (
            integer(1)
            if isinstance(involved[0], Symbol)
            else _run_stride(involved[0], symbol, step)
        )
        if own is None:
            return None
        rest = [atom for atom in atoms if atom is not involved[0]]
        factor = integer(coefficient)
        for atom in rest:
            factor = factor * Index(((1, (atom,)),), 0)
        total = total + own * factor
    return total


def _run_stride(atom: Compound, symbol: Symbol, step: int) -> Index | None:
    """The stride of `left // c` or `left % c` within aligned runs, where c is a multiple of the
    run."""
    if atom.operator not in ("//", "%") or atom.right.divisor % step:
        return None
    if symbol in atom.right.free() or atom.left.stride(symbol) != 1:
        return None
    if (atom.left - symbol).divisor % step:
        return None
    return integer(0 if atom.operator == "//" else 1)


def lane_offsets(index: Index, symbol: Symbol, count: int) -> tuple[int, ...] | None:
    """How far `index` is, at each of `count` neighbouring elements, from where it is at the first,
    which is a multiple of `count`; None where that is no constant.

    Of `i // 2`, for 4 elements, (0, 0, 1, 1), and of `(i + 1) // 2` (0, 1, 1, 2).
    """
    step = stride(index, symbol, count)
    if step is not None:
        return tuple(int(step) * n for n in range(count)) if step.is_constant else None
    total = [0] * count
    for coefficient, atoms in index.terms:
        if not any(a == symbol or (isinstance(a, Compound) and symbol in a.free()) for a in atoms):
            continue
        offsets = _atom_offsets(atoms[0], symbol, count) if len(atoms) == 1 else None
        if offsets is None:
            return None
        total = [before + coefficient * own for before, own in zip(total, offsets, strict=True)]
    return tuple(total)


def _atom_offsets(atom: Symbol | Compound, symbol: Symbol, count: int) -> Sequence[int] | None:
    """`lane_offsets` of the symbol, and of `(i + c) // d` and `(i + c) % d` where runs of `count`
    begin at multiples of d.
    """
    if isinstance(atom, Symbol):
        return range(count)
    if atom.operator not in ("//", "%") or not atom.right.is_constant:
        return None
    divisor, rest = int(atom.right), atom.left - symbol
    if count % divisor or symbol in rest.free() or (rest - rest.constant).divisor % divisor:
        return None
    first = rest.constant % divisor
    if atom.operator == "//":
        return [(first + n) // divisor for n in range(count)]
    return [(first + n) % divisor - first for n in range(count)]


# Work
# ------------------------------------------------------------------------------------------------


@record
class MemoryAccess:
    """One element of memory, as a function of the loops."""

    buffer: str
    index: Index
    loaded_along: frozenset[Symbol]
    """Loop variables on which the loaded values in the index depend."""

    is_read: bool


@record
class Traits:
    """Facts about a stage for planning, computed once."""

    values: tuple[Value, ...]
    """Each once, after what it is made from."""

    accesses: tuple[MemoryAccess, ...]
    """Loads, then stores."""

    cost: int
    """The work at one point of the loops, in additions."""

    reduces: bool

    scan_cost: int
    """The work of one step of the scans, in additions; 0 where there are none."""

    @classmethod
    def of(cls, stage: Stage, dependences: Dependences) -> Traits:
        values = tuple(stage_values(stage))
        reads = [
            MemoryAccess(node.buffer, node.index, _loaded_along(node.indirect, dependences), True)
            for node in values
            if isinstance(node, Load)
        ]
        writes = [
            MemoryAccess(action.buffer, action.index, frozenset(), False)
            for action in stage.actions
            if not isinstance(action, Reduce)
        ]
        scan_cost = sum(_scan_cost(a.kind) for a in stage.actions if isinstance(a, ScanStore))
        cost = sum(map(_cost, values)) + len(stage.actions) + scan_cost
        reduces = any(isinstance(action, Reduce) for action in stage.actions)
        return cls(values, (*reads, *writes), cost, reduces, scan_cost)


def _scan_cost(kind: str) -> int:
    """Cost of combining two results of a scan, in additions."""
    return {"sum": 1, "prod": 1, "logsumexp": 25}.get(kind, 3)


def _loaded_along(loaded: tuple[Value, ...], dependences: Dependences) -> frozenset[Symbol]:
    return frozenset[Symbol]().union(*(dependences.of(value) for value in loaded))


def _cost(value: Value) -> int:
    """Cost of one value, in additions, what it is made from left out."""
    return 1 if isinstance(value, Load | Indirect) else node_cost(value)


def rows_of(group: Group, hints: SizeHints = NO_HINTS) -> tuple[int, int]:
    """The number of points of a group's outer loops, and of turns of the loops of the stage that
    has most of its own; guessed where sizes have no hint.
    """
    rows = prod(extent_hint(symbol, hints) for symbol in group.outer)
    return rows, max(points(stage, hints) for stage in group.stages)


def elements_at_once(group: Group) -> int:
    """The most elements of one buffer that a point of a stage writes: more than one where it does
    several parts at once.
    """
    writes = (
        action.buffer
        for stage in group.stages
        for action in stage.actions
        if not isinstance(action, Reduce)
    )
    return max(Counter(writes).values(), default=1)


def points(stage: Stage, hints: SizeHints = NO_HINTS) -> int:
    """The number of times that a stage's actions run for one point of the outer loops, guessed
    where sizes have no hint.
    """
    return prod(extent_hint(symbol, hints) for symbol in stage.inner)
