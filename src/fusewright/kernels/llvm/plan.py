"""Decides how a group is laid over vector lanes, units of work and threads; writes nothing.

Two shapes:

- *outer lanes*: one of the group's outer loops is cut into vectors; every stage, reductions too,
  works on a vector of independent points. For pointwise work, and for reductions over rows (`sum`
  over dimension 0). Of these large ones go *by rows*: each turn of a stage's loops takes a whole
  block of vectors.
- *inner lanes*: each stage's own inner loop is cut into vectors; outer points are taken one at a
  time. For reductions along contiguous memory (softmax, layer norm), and for rows that are walked
  over to gather their columns beside.

The choice is the one whose memory accesses cost least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from fusewright.ir.dtype import DType
from fusewright.ir.group import Accumulate, Group, Reduce, Store
from fusewright.ir.index import Index, LoopSymbol, integer
from fusewright.ir.limits import (
    FEW_ROWS_OF_CPU,
    HELD_ROWS,
    WALKED_ELEMENTS,
    WALKED_LANES,
    held_lines,
)
from fusewright.kernels import analysis
from fusewright.kernels.analysis import Dependences, Traits, extent_hint, points
from fusewright.kernels.llvm.tiles import STRIP, Squares, choose_tile, squares_of, strips
from fusewright.records import field, record
from fusewright.runtime.llvm_engine import CpuTarget

GATHER = 16.0
"""Cost of one element gathered, in elements loaded next to each other."""

TURN = 6.0
"""The same for an element of a square that is turned in registers, where other accesses are along
the lanes. Rows that are only read as they lie are not worth turning.
"""

FOLD = 12.0
"""Cost of folding a vector into a scalar, in additions."""

SERIAL_WORK = 16_384
"""Operations on registers that one thread does, in about 5 µs, before a second one is woken.

Waking one takes 1.3 µs where its processor is idle, but milliseconds where another process has it.
"""

BLOCK_WORK = 8_192
"""Additions a unit of work should hold when one loop is cut into several units."""

SCANNED_COST = 8
"""The cost of a scan's step up to which a vector is scanned in itself, which takes a few of them;
where it is more, the elements of a row are taken one by one.
"""

FRAME_BYTES = 1 << 22
"""The bytes that rows may take of a thread's stack, which holds 8 MiB in most threads."""


@record
class InnerPlan:
    """The plan of a stage in the shape of inner lanes."""

    lane: LoopSymbol | None
    """The inner loop cut into vectors; None where there is none."""

    wide: int
    """Elements of one step."""

    squares: Squares | None = None
    """An inner loop taken in squares against the lanes, which are an outer loop's."""


@record(kw_only=True)
class KernelPlan:
    """The plan by which one group is written."""

    outer_lane: LoopSymbol | None
    """The outer loop cut into vectors; None where each stage's inner loop is."""

    lanes: int
    """Elements of one register."""

    wide: int
    """Elements of one step of the main loop: one or several registers."""

    inner: tuple[InnerPlan, ...]
    """One for each stage."""

    tile: LoopSymbol | None = None
    """An outer loop taken in tiles against the lanes, because some loads run along it; a unit of
    work has one of its strips.
    """

    asks_ahead: bool = False
    """Whether tiles ask for the memory of those that follow, since the caches of one core do not
    hold it.
    """

    points: tuple[LoopSymbol, ...]
    """Outer loops that are neither, and not walked over, and the strips of `tile`: a unit of work
    is one point of them (and one block).
    """

    block: Index = field(default_factory=lambda: integer(1))
    """Elements of the lane loop in one unit of work."""

    blocks: Index = field(default_factory=lambda: integer(1))
    """Units that the lane loop is cut into."""

    by_rows: bool = False
    """Whether stages go through the lanes of a block inside their own loops, so that memory is read
    row by row; what is kept a lane lies in the function's frame.
    """

    units: Index
    """Units of work in all."""

    grain: int
    """Units that a thread should have at least."""


def make_plan(group: Group, target: CpuTarget) -> KernelPlan:
    """Choose lanes, steps and units for a group."""
    return next(possible_plans(group, target))


def possible_plans(group: Group, target: CpuTarget) -> Iterator[KernelPlan]:
    """The plans for a group, one for each choice of lanes, the one that costs least first."""
    dependences = Dependences()
    traits = [Traits.of(stage, dependences) for stage in group.stages]
    lanes = target.lanes(lane_bits(group, traits))
    actions = [action for stage in group.stages for action in stage.actions]
    if scatters := [action for action in actions if isinstance(action, Accumulate)]:
        yield from _scatter_plans(group, traits, scatters, lanes)
        return
    for outer in ranked_outer_lanes(group, traits, lanes):
        yield _plan_along(group, traits, outer, lanes)


def _plan_along(
    group: Group, traits: list[Traits], outer: LoopSymbol | None, lanes: int
) -> KernelPlan:
    """The plan whose lanes run along an outer loop, or along each stage's inner loop."""
    cost = sum(t.cost * points(stage) for t, stage in zip(traits, group.stages, strict=True))
    if outer is not None:
        return _outer_plan(group, traits, outer, lanes, cost)
    inner = tuple(
        _inner_plan(stage.inner, t, lanes) for t, stage in zip(traits, group.stages, strict=True)
    )
    units = group.outer[: len(group.outer) - len(group.walked)]
    cost *= prod(map(extent_hint, group.walked))
    return KernelPlan(
        outer_lane=None,
        lanes=lanes,
        wide=lanes,
        inner=inner,
        points=units,
        units=product_of_extents(units),
        grain=_grain(cost / lanes),
    )


def _scatter_plans(
    group: Group, traits: list[Traits], scatters: list[Accumulate], lanes: int
) -> Iterator[KernelPlan]:
    """Plans for scatters, whose points meet in no element along outer loops, and may along inner
    ones: vectors along an outer loop that walks through memory, or elements one by one.
    """
    cost = sum(t.cost * points(stage) for t, stage in zip(traits, group.stages, strict=True))
    for symbol in group.outer if lanes > 1 else ():
        if all(action.index.stride(symbol) == 1 for action in scatters):
            yield _outer_plan(group, traits, symbol, lanes, cost)
    yield KernelPlan(
        outer_lane=None,
        lanes=1,
        wide=1,
        inner=(InnerPlan(None, 1),) * len(group.stages),
        points=group.outer,
        units=product_of_extents(group.outer),
        grain=_grain(cost),
    )


def _outer_plan(
    group: Group, traits: list[Traits], outer: LoopSymbol, lanes: int, cost: int
) -> KernelPlan:
    wide = lanes * _outer_unroll(group, traits, outer, lanes)
    tile = choose_tile(group, outer) if lanes > 1 else None
    elements = prod(extent_hint(symbol) for symbol in group.outer)
    loops = tuple(symbol for symbol in group.outer if symbol not in (outer, tile))
    if tile is not None:
        cost *= min(STRIP, extent_hint(tile))
        loops = (*loops, strips(tile))
    whole = outer.extent
    squares = [squares_of(stage, outer, lanes) if lanes > 1 else None for stage in group.stages]
    is_turned = tile is not None or any(squares)
    stays_in_registers = outer.extent.is_constant and int(outer.extent) <= wide
    may_walk = lanes > 1 and not (is_turned or stays_in_registers)
    by_rows = may_walk and walks_rows(group, traits, outer)
    block = _walked_block(outer, loops, wide) if by_rows else _block(outer, loops, cost, wide)
    blocks = integer(1) if block == whole else (whole + (block - 1)) // block
    block_hint = int(block) if block.is_constant else extent_hint(outer)
    return KernelPlan(
        outer_lane=outer,
        lanes=lanes,
        wide=wide,
        inner=tuple(InnerPlan(None, 1, own) for own in squares),
        tile=tile,
        asks_ahead=tile is not None and elements >= WALKED_ELEMENTS,
        points=loops,
        block=block,
        blocks=blocks,
        by_rows=by_rows,
        units=product_of_extents(loops) * blocks,
        grain=_grain(cost * block_hint / lanes),
    )


def lane_bits(group: Group, traits: list[Traits]) -> int:
    """Width of the elements that fill a register exactly: 64 bits only where nothing is
    narrower."""
    types = {buffer.layout.dtype for buffer in (*group.reads, *group.writes)}
    types |= {value.dtype for t in traits for value in t.values}
    types -= {DType.BOOL}
    return 64 if types and types <= {DType.I64, DType.F64} else 32


def bytes_of_rows(group: Group) -> int:
    """The most bytes that the rows of one point of the outer loops take."""
    total = integer(0)
    for local in group.locals:
        if local.size:
            total = total + prod(local.size, start=integer(local.dtype.bytes))
    return total.upper if total.upper is not None else FRAME_BYTES


def product_of_extents(symbols: tuple[LoopSymbol, ...]) -> Index:
    total = integer(1)
    for symbol in symbols:
        total = total * symbol.extent
    return total


def _grain(unit_cost: float) -> int:
    return max(1, round(SERIAL_WORK / max(unit_cost, 1e-9)))


def _block(outer: LoopSymbol, loops: tuple[LoopSymbol, ...], cost: int, wide: int) -> Index:
    """Elements in one unit: a whole row, unless rows are few and long."""
    rows = prod(extent_hint(symbol) for symbol in loops)
    whole = outer.extent
    if rows >= 64:
        return whole
    block = max(wide, int(BLOCK_WORK / max(cost, 1)) // wide * wide)
    if whole.is_constant and int(whole) <= block:
        return whole
    return integer(block)


def walks_rows(group: Group, traits: list[Traits], outer: LoopSymbol) -> bool:
    """Whether stages reduce, or scatter, so much that lies across memory that it is read row by
    row: processors ask ahead for what comes next in memory, and not for pieces of rows (a sum of
    the columns of 64 MB takes a third of the time so, an AMD EPYC). Where a few rows are gone
    through several times, pieces stay in a cache.
    """
    looping = [t for t, stage in zip(traits, group.stages, strict=True) if stage.inner]
    rows = max((points(stage) for stage in group.stages), default=0)
    if rows * prod(extent_hint(symbol) for symbol in group.outer) < WALKED_ELEMENTS:
        return False
    actions = [action for stage in group.stages for action in stage.actions]
    scatters = any(isinstance(action, Accumulate) for action in actions)
    if not looping or not (looping[0].reduces or scatters):
        return False
    if len(looping) > 1 and rows <= min(HELD_ROWS, _held_rows(group, traits, outer)):
        return False
    if any(local.size or local.dtype is DType.BOOL for local in group.locals):
        return False
    if not all(isinstance(action, Store | Reduce | Accumulate) for action in actions):
        return False
    inner = {symbol for stage in group.stages for symbol in stage.inner}
    return any(
        access.is_read and access.index.stride(outer) == 1 and inner & access.index.free()
        for t in looping
        for access in t.accesses
    )


def _held_rows(group: Group, traits: list[Traits], outer: LoopSymbol) -> int:
    """How many rows pieces of which stay in a core's cache, by how far apart rows are."""
    bytes_of = {buffer.name: buffer.layout.dtype.bytes for buffer in (*group.reads, *group.writes)}
    held = HELD_ROWS
    for t, stage in zip(traits, group.stages, strict=True):
        for access in t.accesses:
            steps = [access.index.stride(symbol) for symbol in stage.inner]
            known = [abs(int(step)) for step in steps if step is not None and step.is_constant]
            if access.index.stride(outer) == 1 and any(known):
                step = min(filter(None, known))
                held = min(held, held_lines(step * bytes_of.get(access.buffer, 1)))
    return held


def _walked_block(outer: LoopSymbol, loops: tuple[LoopSymbol, ...], wide: int) -> Index:
    """Elements of rows that are walked over at once: as many as lie near, if that leaves units for
    all threads.
    """
    share = -(-prod(map(extent_hint, (*loops, outer))) // FEW_ROWS_OF_CPU)
    block = min(WALKED_LANES, -(-share // wide) * wide)
    whole = outer.extent
    return whole if whole.is_constant and int(whole) <= block else integer(block)


def _outer_unroll(group: Group, traits: list[Traits], outer: LoopSymbol, lanes: int) -> int:
    """Registers in one step: several where a chain of additions would else wait for itself, or a
    scatter walk over its rows for little."""
    stores_only = all(isinstance(a, Store) for stage in group.stages for a in stage.actions)
    if lanes == 1 or stores_only or max(t.cost for t in traits) > 8:
        return 1
    if bytes_of_rows(group) * lanes * 4 > FRAME_BYTES:
        return 1
    whole = outer.extent
    return 4 if not whole.is_constant or int(whole) >= 4 * lanes else 1


def _inner_plan(inner: tuple[LoopSymbol, ...], traits: Traits, lanes: int) -> InnerPlan:
    lane = _inner_lane(inner, traits, lanes) if lanes > 1 else None
    if lane is None:
        return InnerPlan(None, 1)
    return InnerPlan(lane, lanes * _inner_unroll(traits, lane, lanes))


def _inner_unroll(traits: Traits, lane: LoopSymbol, lanes: int) -> int:
    """The width in vectors of steps over lanes inside, as over those outside; a short row is one
    masked step.
    """
    if traits.cost > 12 or traits.scan_cost:  # a wider vector takes more steps to be scanned
        return 1
    whole = lane.extent
    if whole.is_constant and int(whole) <= 4 * lanes:
        return 1 if int(whole) <= lanes else 2 if int(whole) <= 2 * lanes else 4
    if not traits.reduces:
        return 1
    return 4 if not whole.is_constant or int(whole) >= 8 * lanes else 1


# The choice of lanes
# ------------------------------------------------------------------------------------


def ranked_outer_lanes(group: Group, traits: list[Traits], lanes: int) -> list[LoopSymbol | None]:
    """The outer loops that may be cut into vectors, None for inner loops, by what they cost."""
    return [lane for _, _, lane in _lanes_by_cost(group, traits, lanes)]


def near_plans(group: Group, target: CpuTarget, share: float) -> int:
    """How many of the `possible_plans` cost at most `share` times what the cheapest does."""
    dependences = Dependences()
    traits = [Traits.of(stage, dependences) for stage in group.stages]
    order = _lanes_by_cost(group, traits, target.lanes(lane_bits(group, traits)))
    return sum(cost <= share * order[0][0] for cost, _, _ in order)


def _lanes_by_cost(
    group: Group, traits: list[Traits], lanes: int
) -> list[tuple[float, int, LoopSymbol | None]]:
    """Outer loops, and None for inner loops, behind what they cost. Points that are walked over
    come one after the other.
    """
    if not group.outer or group.walked:
        return [(0.0, 0, None)]
    candidates: list[tuple[float, int, LoopSymbol | None]] = [
        (_outer_cost(group, traits, symbol, lanes), -position, symbol)
        for position, symbol in enumerate(group.outer)
        if bytes_of_rows(group) * lanes <= FRAME_BYTES
    ]
    if any(stage.inner for stage in group.stages):
        candidates.append((_inner_cost(group, traits, lanes), 1, None))
    return sorted(candidates, key=lambda candidate: candidate[:2])


def _inner_lane(inner: tuple[LoopSymbol, ...], traits: Traits, lanes: int) -> LoopSymbol | None:
    """The inner loop of a stage that is best cut into vectors; a scan goes along the last."""
    if traits.scan_cost:
        return inner[-1] if traits.scan_cost <= SCANNED_COST else None
    return min(
        reversed(inner),
        key=lambda symbol: _access_cost(traits, symbol, lanes) / _filling(symbol, lanes),
        default=None,
    )


def _filling(symbol: LoopSymbol, lanes: int) -> float:
    """The part of the lanes that do useful work."""
    count = max(extent_hint(symbol), 1)
    return count / (-(-count // lanes) * lanes)


def _outer_cost(group: Group, traits: list[Traits], symbol: LoopSymbol, lanes: int) -> float:
    total = 0.0
    follows = any(
        access.index.stride(symbol) == 1 and not access.index.free().isdisjoint(stage.inner)
        for t, stage in zip(traits, group.stages, strict=True)
        for access in t.accesses
    )
    for t, stage in zip(traits, group.stages, strict=True):
        squares = squares_of(stage, symbol, lanes) if follows and lanes > 1 else None
        saved = 0.0 if squares is None else squares.count * (GATHER - TURN)
        total += points(stage) * (_access_cost(t, symbol, lanes) - saved + t.cost)
    return total / lanes / _filling(symbol, lanes)


def _inner_cost(group: Group, traits: list[Traits], lanes: int) -> float:
    total = 0.0
    for t, stage in zip(traits, group.stages, strict=True):
        lane = _inner_lane(stage.inner, t, lanes)
        if lane is None:
            total += points(stage) * (t.cost + len(t.accesses))
            continue
        cost = _access_cost(t, lane, lanes) + t.cost
        total += points(stage) * cost / lanes / _filling(lane, lanes)
        total += FOLD if t.reduces else 0.0
        total += points(stage) * t.scan_cost * (lanes.bit_length() - 1) / lanes
    return total


def _access_cost(traits: Traits, symbol: LoopSymbol, lanes: int) -> float:
    """Cost of a stage's memory accesses at one point, if `symbol` were the lanes."""
    total = 0.0
    for access in traits.accesses:
        step = analysis.stride(access.index, symbol, lanes)
        if symbol in access.loaded_along:
            total += GATHER
        elif step is not None and step.is_constant and int(step) in STEP_COST:
            total += STEP_COST[int(step)]
        else:
            offsets = analysis.lane_offsets(access.index, symbol, lanes) if access.is_read else None
            total += GATHER if offsets is None else _cost_of_picking(offsets)
    return total


def _cost_of_picking(offsets: Sequence[int]) -> float:
    """The cost of picking lanes from whole vectors, or of a gather where these are too many."""
    runs = runs_of(offsets)
    return 2.0 * max(1, runs - 1) if runs <= MOST_RUNS else GATHER


def runs_of(offsets: Sequence[int]) -> int:
    """How many whole vectors hold the elements at these offsets, one a lane."""
    return -(-(1 + max(offsets) - min(offsets)) // len(offsets))


STEP_COST = {0: 0.25, 1: 1.0}
"""Cost of an access by its step from lane to lane; any other is a scatter, or a load of lanes that
are picked or gathered.
"""

MOST_RUNS = 4
"""Vectors up to which they are loaded whole, and lanes picked from them, instead of gathered."""
