"""Decides how a group is laid over vector lanes, units of work and threads; nothing is written here.

Two shapes:

- *outer lanes*: one of the group's outer loops is cut into vectors; every stage, reductions included, works on a
  vector of independent points. For pointwise work, and for reductions over rows (`sum` over dimension 0).
- *inner lanes*: each stage's own inner loop is cut into vectors; outer points are taken one at a time. For
  reductions along contiguous memory (softmax, layer norm).

The choice is the one whose memory accesses cost least.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fusewright.ir.dtype import DType
from fusewright.ir.group import Accumulate, Group, Reduce, Stage
from fusewright.ir.index import Index, Symbol, integer
from fusewright.kernels import analysis
from fusewright.kernels.analysis import extent, extent_hint
from fusewright.kernels.llvm.tiles import choose_tile
from fusewright.runtime.llvm_engine import CpuTarget

GATHER = 16.0
"""Cost of one element gathered, in elements loaded next to each other."""

FOLD = 12.0
"""Cost of folding a vector into a scalar, in additions."""

SERIAL_WORK = 32_768
"""Additions that one thread does before a second thread pays."""

BLOCK_WORK = 8_192
"""Additions a unit of work should hold when one loop is cut into several units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one group is written."""

    outer_lane: Symbol | None
    """The outer loop cut into vectors; None where each stage's inner loop is."""

    lanes: int
    """Elements of one register."""

    wide: int
    """Elements of one step of the main loop: one or several registers."""

    tile: Symbol | None = None
    """An outer loop taken in tiles against the lanes, because some loads run along it."""

    points: tuple[Symbol, ...]
    """Outer loops that are not lanes, outermost first: a unit of work is one point of them (and one block)."""

    block: Index
    """Elements of the lane loop in one unit of work."""

    blocks: Index
    """Units that the lane loop is cut into."""

    units: Index
    """Units of work in all."""

    grain: int
    """Units that a thread should have at least."""


def make_plan(group: Group, target: CpuTarget) -> Plan:
    """Choose lanes, steps and units for a group."""
    lanes = target.lanes(lane_bits(group))
    if any(isinstance(a, Accumulate) for stage in group.stages for a in stage.actions):
        return _serial(group)
    outer = choose_outer_lane(group, lanes)
    cost = analysis.point_cost(group)
    if outer is None:
        units = prod_index(group.outer)
        unit_cost = cost / lanes if lanes > 1 else cost
        return Plan(
            outer_lane=None,
            lanes=lanes,
            wide=lanes,
            points=group.outer,
            block=integer(1),
            blocks=integer(1),
            units=units,
            grain=_grain(unit_cost),
        )
    wide = lanes * _unroll(group, lanes, outer)
    tile = choose_tile(group, outer) if lanes > 1 else None
    points = tuple(symbol for symbol in group.outer if symbol not in (outer, tile))
    if tile is not None:
        cost *= extent_hint(tile)
    block = _block(outer, points, cost, wide)
    blocks = (extent(outer) + (block - 1)) // block if block != extent(outer) else integer(1)
    block_hint = int(block) if block.is_constant else extent_hint(outer)
    return Plan(
        outer_lane=outer,
        lanes=lanes,
        wide=wide,
        tile=tile,
        points=points,
        block=block,
        blocks=blocks,
        units=prod_index(points) * blocks,
        grain=_grain(cost * block_hint / lanes),
    )


def _serial(group: Group) -> Plan:
    """Scatters: points may meet in one element, so they are taken one after another, in order."""
    return Plan(
        outer_lane=None,
        lanes=1,
        wide=1,
        points=group.outer,
        block=integer(1),
        blocks=integer(1),
        units=prod_index(group.outer),
        grain=2**62,
    )


def lane_bits(group: Group) -> int:
    """Width of the elements that fill a register exactly: 64 bits only where nothing is narrower."""
    types = {
        buffer.layout.dtype for buffer in (*group.reads, *group.writes)
    } | analysis.value_types(group)
    narrow = types - {DType.I64, DType.F64, DType.BOOL}
    return 32 if narrow or not types - {DType.BOOL} else 64


def prod_index(symbols: tuple[Symbol, ...]) -> Index:
    total = integer(1)
    for symbol in symbols:
        total = total * extent(symbol)
    return total


def _grain(unit_cost: float) -> int:
    return max(1, round(SERIAL_WORK / max(unit_cost, 1e-9) / 8))


def _block(outer: Symbol, points: tuple[Symbol, ...], cost: int, wide: int) -> Index:
    """Elements in one unit: a whole row, unless rows are few and long."""
    rows = prod(extent_hint(symbol) for symbol in points)
    whole = extent(outer)
    if rows >= 64:
        return whole
    block = max(wide, int(BLOCK_WORK / max(cost, 1)) // wide * wide)
    if whole.is_constant and int(whole) <= block:
        return whole
    return integer(block)


def _unroll(group: Group, lanes: int, outer: Symbol) -> int:
    """Registers in one step: several where a reduction's chain of additions would else wait for itself."""
    if lanes == 1:
        return 1
    reduces = any(isinstance(a, Reduce) for stage in group.stages for a in stage.actions)
    light = max(map(analysis.stage_cost, group.stages)) <= 8
    if not (reduces and light):
        return 1
    whole = extent(outer)
    return 4 if not whole.is_constant or int(whole) >= 4 * lanes else 1


def stage_unroll(stage: Stage, lane: Symbol, lanes: int) -> int:
    """As above, for a stage whose inner loop is cut into vectors; a short row is taken in one masked step."""
    if lanes == 1 or analysis.stage_cost(stage) > 12:
        return 1
    whole = extent(lane)
    if whole.is_constant and int(whole) <= 4 * lanes:
        return 1 if int(whole) <= lanes else 2 if int(whole) <= 2 * lanes else 4
    reduces = any(isinstance(action, Reduce) for action in stage.actions)
    if not reduces:
        return 1
    return 4 if not whole.is_constant or int(whole) >= 8 * lanes else 1


# The choice of lanes ------------------------------------------------------------------------------------


def choose_outer_lane(group: Group, lanes: int) -> Symbol | None:
    """The outer loop to cut into vectors, or None for inner loops."""
    inner = any(stage.inner for stage in group.stages)
    if not group.outer:
        return None
    candidates: list[tuple[float, int, Symbol | None]] = [
        (_outer_cost(group, symbol, lanes), -position, symbol)
        for position, symbol in enumerate(group.outer)
    ]
    if inner:
        candidates.append((_inner_cost(group, lanes), 1, None))
    return min(candidates, key=lambda candidate: candidate[:2])[2]


def stage_lane(stage: Stage, lanes: int) -> Symbol | None:
    """The inner loop of a stage that is cut into vectors, in the inner shape."""
    if not stage.inner:
        return None
    return min(
        reversed(stage.inner),
        key=lambda symbol: _access_cost(stage, symbol, lanes) / _filling(symbol, lanes),
    )


def _filling(symbol: Symbol, lanes: int) -> float:
    """The part of the lanes that do useful work."""
    count = extent_hint(symbol)
    return max(count, 1) / (-(-max(count, 1) // lanes) * lanes)


def _outer_cost(group: Group, symbol: Symbol, lanes: int) -> float:
    total = 0.0
    for stage in group.stages:
        points = prod(map(extent_hint, stage.inner))
        total += points * (_access_cost(stage, symbol, lanes) + analysis.stage_cost(stage)) / lanes
    return total / _filling(symbol, lanes)


def _inner_cost(group: Group, lanes: int) -> float:
    total = 0.0
    for stage in group.stages:
        points = prod(map(extent_hint, stage.inner))
        lane = stage_lane(stage, lanes)
        if lane is None:
            total += analysis.stage_cost(stage) + len(list(analysis.accesses(stage)))
            continue
        cost = _access_cost(stage, lane, lanes) + analysis.stage_cost(stage)
        total += points * cost / lanes / _filling(lane, lanes)
        total += FOLD * sum(isinstance(action, Reduce) for action in stage.actions)
    return total


def _access_cost(stage: Stage, symbol: Symbol, lanes: int) -> float:
    """Cost of a stage's memory accesses at one point, if `symbol` were the lanes."""
    total = 0.0
    for _, index, indirect in analysis.accesses(stage):
        step = analysis.stride(index, symbol, lanes)
        if indirect and step is not None and _loaded_depends(stage, index, symbol):
            step = None
        if step == 0:
            total += 0.25
        elif step == 1:
            total += 1.0
        else:
            total += GATHER
    return total


def _loaded_depends(stage: Stage, index: Index, symbol: Symbol) -> bool:
    """Whether an index holds a loaded symbol that changes along `symbol`."""
    dependences = analysis.Dependences()
    for node in analysis.stage_values(stage):
        if isinstance(node, analysis.Indirect) and node.symbol in index.free():
            if symbol in dependences.of(node):
                return True
    return False
