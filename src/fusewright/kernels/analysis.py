"""What every kernel target asks of a group: what its values depend on, how its accesses step, how much work it is."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from fusewright.ir.dtype import DType
from fusewright.ir.group import Accumulate, Action, Group, Reduce, Stage, Store
from fusewright.ir.index import Compound, Index, Symbol, integer
from fusewright.ir.value import (
    Apply,
    Cast,
    Constant,
    IndexValue,
    Indirect,
    Load,
    Masked,
    Random,
    Value,
    children,
    postorder,
)

ASSUMED_EXTENT = 64
"""Stands for a symbolic extent where only profit depends on it."""

EXPENSIVE = {
    **dict.fromkeys(("sqrt", "rsqrt", "div", "reciprocal"), 4),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "tanh"), 10),
    **dict.fromkeys(("sigmoid", "sin", "cos", "tan", "pow", "atan2", "erfinv", "fmod"), 20),
    **dict.fromkeys(("remainder", "floor_div", "trunc_div", "lgamma", "erfc", "asin"), 20),
}
"""Cost of an operation in additions, where it is not about one."""


# Values ----------------------------------------------------------------------------------------------


def roots(action: Action) -> tuple[Value, ...]:
    """The values that an action evaluates."""
    match action:
        case Store(value=value) | Reduce(value=value):
            return (value,)
        case Accumulate(value=value, indirect=indirect):
            return (*indirect, value)


def stage_values(stage: Stage) -> Iterator[Value]:
    """Every value of a stage once, each after what it is made from."""
    return postorder(tuple(root for action in stage.actions for root in roots(action)))


def extent(symbol: Symbol) -> Index:
    """How often a loop runs."""
    assert symbol.extent is not None, f"{symbol} is not a loop variable"
    return symbol.extent


def extent_hint(symbol: Symbol) -> int:
    """How often a loop runs, guessed where it is symbolic."""
    count = extent(symbol)
    return int(count) if count.is_constant else ASSUMED_EXTENT


class Dependences:
    """Which loop variables each value depends on, worked out once a value."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[Symbol]] = {}

    def of(self, value: Value) -> frozenset[Symbol]:
        """The loop variables in the value's indices, in those of what it is made from, and in loaded indices."""
        known = self._known.get(id(value))
        if known is None:
            for node in postorder((value,)):
                if id(node) not in self._known:
                    self._known[id(node)] = self._of_node(node)
            known = self._known[id(value)]
        return known

    def _of_node(self, node: Value) -> frozenset[Symbol]:
        found = frozenset[Symbol]().union(*(self._known[id(child)] for child in children(node)))
        match node:
            case Load(index=index) | IndexValue(index=index) | Random(position=index):
                return found | {symbol for symbol in index.free() if symbol.extent is not None}
        return found


def stride(index: Index, symbol: Symbol, step: int = 1) -> Index | None:
    """The step of `index` along `symbol` within runs of `step` elements that start at a multiple of `step`.

    `(i // 64).stride` is unknown, but for runs of 16 it is 0, and that of `i % 64` is 1.
    """
    plain = index.stride(symbol)
    if plain is not None or step == 1:
        return plain
    total = integer(0)
    for coefficient, atoms in index.terms:
        involved = [a for a in atoms if a == symbol or isinstance(a, Compound) and symbol in _free(a)]
        if not involved:
            continue
        if len(involved) > 1:
            return None
        own = integer(1) if isinstance(involved[0], Symbol) else _run_stride(involved[0], symbol, step)
        if own is None:
            return None
        rest = [atom for atom in atoms if atom is not involved[0]]
        factor = integer(coefficient)
        for atom in rest:
            factor = factor * Index(((1, (atom,)),), 0)
        total = total + own * factor
    return total


def _run_stride(atom: Compound, symbol: Symbol, step: int) -> Index | None:
    """The stride of `left // c` or `left % c` within aligned runs, where c is a multiple of the run."""
    if atom.operator not in ("//", "%") or atom.right.divisor % step:
        return None
    if symbol in atom.right.free() or atom.left.stride(symbol) != 1:
        return None
    if (atom.left - symbol).divisor % step:
        return None
    return integer(0 if atom.operator == "//" else 1)


def _free(atom: Compound) -> frozenset[Symbol]:
    return atom.left.free() | atom.right.free()


# Work ------------------------------------------------------------------------------------------------


def accesses(stage: Stage) -> Iterator[tuple[str, Index, bool]]:
    """(buffer, index, whether the index holds loaded values) of every load and store of a stage."""
    for node in stage_values(stage):
        if isinstance(node, Load):
            yield node.buffer, node.index, bool(node.indirect)
    for action in stage.actions:
        match action:
            case Store(buffer=buffer, index=index):
                yield buffer, index, False
            case Accumulate(buffer=buffer, index=index):
                yield buffer, index, True


def stage_cost(stage: Stage) -> int:
    """Cost of one point of a stage, in additions."""
    total = 0
    for node in stage_values(stage):
        match node:
            case Apply(operation=operation):
                total += EXPENSIVE.get(operation, 1)
            case Cast() | Masked() | Load() | Indirect():
                total += 1
            case Random():
                total += 40
            case Constant() | IndexValue():
                pass
    return total + len(stage.actions)


def point_cost(group: Group) -> int:
    """Cost of one point of the outer loops, in additions."""
    return sum(stage_cost(stage) * prod(map(extent_hint, stage.inner)) for stage in group.stages)


def value_types(group: Group) -> frozenset[DType]:
    """The element types that occur in a group."""
    return frozenset(node.dtype for stage in group.stages for node in stage_values(stage))
