"""Writes stages that reduce: accumulators before the loops, steps inside, results folded after."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fusewright.ir.dtype import DType
from fusewright.ir.group import Action, Reduce, Stage
from fusewright.ir.index import Index, LoopSymbol, integer
from fusewright.kernels.llvm import indexing, memory
from fusewright.kernels.llvm.builder import Register, VectorType
from fusewright.kernels.llvm.loops import Loops
from fusewright.kernels.llvm.reductions import Accumulator, Reducer, State
from fusewright.kernels.llvm.storage import REGISTER, convert
from fusewright.kernels.llvm.values import evaluate_lanes
from fusewright.records import record

SHORT = 64
"""Elements that a floating-point sum takes in one after another without harm."""


@record(frozen=False)
class Running:
    """One reduction in progress: an accumulator for each vector width that the loops step by."""

    action: Reduce
    reducer: Reducer
    by_width: dict[int, Accumulator]
    total: Accumulator | None
    """The total in which short sums are gathered; None where the loops are short."""

    value: Callable[[], Register]
    """Writes the element to take in."""


def write_reductions(loops: Loops, stage: Stage, write_action: Callable[[Action], None]) -> None:
    """All actions of a stage in one pass; a Welford reduction takes a second one for the
    deviations."""
    first = [_begin(loops, stage, action) for action in stage.actions if isinstance(action, Reduce)]
    by_action = {id(running.action): running for running in first}

    def actions() -> None:
        for action in stage.actions:
            if isinstance(action, Reduce):
                _step(loops, stage, by_action[id(action)])
            else:
                write_action(action)

    def results() -> None:
        for running in first:
            result = _result(loops, running)[-1]
            if running.action.kind == "welford":
                count = _count(loops, stage, running.reducer.dtype)
                result = result / loops.scope.spread(count)
            memory.store_local(loops.scope, running.action.targets[0], result)

    _pass(loops, stage, first, actions)
    loops.over_lanes(results)
    _write_deviations(loops, stage)


def _write_deviations(loops: Loops, stage: Stage) -> None:
    """The second pass: squared deviations from the means that the first one left."""
    second = [
        _begin_deviations(loops, stage, action)
        for action in stage.actions
        if isinstance(action, Reduce) and action.kind == "welford"
    ]
    if not second:
        return

    def deviations() -> None:
        for running in second:
            _step(loops, stage, running)

    def results() -> None:
        for running in second:
            (result,) = _result(loops, running)
            memory.store_local(loops.scope, running.action.targets[1], result)

    _pass(loops, stage, second, deviations)
    loops.over_lanes(results)


def _begin(loops: Loops, stage: Stage, action: Reduce) -> Running:
    kind = "sum" if action.kind in ("dot", "welford") else action.kind
    reducer = Reducer(kind, action.value.dtype)
    return _running(
        loops, stage, action, reducer, lambda: evaluate_lanes(loops.scope, action.value)
    )


def _begin_deviations(loops: Loops, stage: Stage, action: Reduce) -> Running:
    """The sum of squared deviations from the mean that the first pass left in its local."""
    scope = loops.scope
    dtype = action.value.dtype

    def squared() -> Register:
        mean = memory.load_local(scope, action.targets[0], dtype, scope.local_lanes)
        deviation = evaluate_lanes(scope, action.value) - scope.spread(mean)
        return deviation * deviation

    return _running(loops, stage, action, Reducer("sum", dtype), squared)


def _running(
    loops: Loops, stage: Stage, action: Reduce, reducer: Reducer, value: Callable[[], Register]
) -> Running:
    scope = loops.scope
    running = Running(action, reducer, {}, None, value)
    for width in _widths(loops, stage):
        running.by_width[width] = Accumulator.make(scope, reducer, width)
    if reducer.kind == "sum" and reducer.dtype.is_float and _is_long(loops, stage):
        running.total = Accumulator.make(scope, reducer, _result_width(loops, stage))
    return running


def _widths(loops: Loops, stage: Stage) -> tuple[int, ...]:
    """The vector widths that the stage's loops step by: of the main loop, and of its tail."""
    if loops.plan.outer_lane is not None:
        return (loops.scope.lane_count,)
    own = loops.inner[id(stage)]
    if own.lane is None:
        return (1,)
    narrow, wide = loops.plan.lanes, own.wide
    count = own.lane.extent
    if count.is_constant and narrow < int(count) < wide:
        return (wide,)
    widths = []
    if not count.is_constant or int(count) >= wide:
        widths.append(wide)
    if not (count.is_constant and int(count) % wide == 0):
        widths.append(narrow)
    return tuple(dict.fromkeys(widths)) or (narrow,)


def _result_width(loops: Loops, stage: Stage) -> int:
    return min(_widths(loops, stage))


def _turns(loops: Loops, stage: Stage) -> int | None:
    """Elements that one lane of an accumulator takes in; None where that is symbolic."""
    total: Index = integer(1)
    for symbol in stage.inner:
        total = total * symbol.extent
    if not total.is_constant:
        return None
    return int(total) // (max(_widths(loops, stage)) if loops.plan.outer_lane is None else 1)


def _is_long(loops: Loops, stage: Stage) -> bool:
    turns = _turns(loops, stage)
    return turns is None or turns > SHORT


def _pass(loops: Loops, stage: Stage, all_running: list[Running], body: Callable[[], None]) -> None:
    """Run the stage's loops once, from the states before any element."""

    def reset() -> None:
        for running in all_running:
            if running.total is not None:
                running.total.here(loops.scope).reset(loops.scope.b)
            else:
                _reset(loops, running)

    loops.over_lanes(reset)
    if any(running.total is not None for running in all_running):
        _in_runs(loops, stage, all_running, body)
    else:
        loops.inner_loops(stage, body, in_parts=False)


def _in_runs(
    loops: Loops,
    stage: Stage,
    all_running: list[Running],
    body: Callable[[], None],
) -> None:
    """Cut the longest reach of one accumulator: one of the loops goes in runs, after each of which
    sums are added to the total.
    """
    scope = loops.scope
    lane, wide = loops.inner[id(stage)].lane, loops.inner[id(stage)].wide

    def begin() -> None:
        for running in all_running:
            if running.total is not None:
                _reset(loops, running)

    def flush() -> None:
        for running in all_running:
            if running.total is not None:
                total = running.total.here(scope)
                total.take_in(scope.b, _folded(loops, running, total.lanes), None)

    squares = loops.inner[id(stage)].squares
    symbols = loops.plain_loops(stage)
    if lane is not None:
        symbols.append(lane)
    step = wide if lane is not None else 1
    level, length = _cut(symbols, _turns(loops, stage), step)
    cut, inside = symbols[level], symbols[level + 1 :]

    def one_run(start: Register, stop: Register) -> None:
        if cut is lane:
            loops.lane_loop(lane, start, stop, wide, body)
            return
        plain = inside if lane is None else inside[:-1]

        def rest() -> None:
            loops.nest(plain, lane, wide, body, squares=squares)

        loops.turns(cut, start, stop, rest, squares, runs=True)

    if cut is lane:
        length *= wide
    elif squares is not None and cut is squares.symbol:
        length = -(-length // loops.plan.lanes) * loops.plan.lanes
    runs = LoopSymbol("run", (cut.extent + (length - 1)) // length)

    def run() -> None:
        start = scope.symbols[runs] * length
        stop = scope.b.intrinsic("smin", start + length, indexing.scalar(scope, cut.extent))
        loops.over_lanes(begin)
        one_run(start, stop)
        loops.over_lanes(flush)

    _loops(loops, [*symbols[:level], runs], run)


def _cut(symbols: Sequence[LoopSymbol], turns: int | None, step: int) -> tuple[int, int]:
    """The loop to cut into runs, by its number, and the turns of a run, so that neither the runs
    nor their total take in much more than the square root of all, which balances the two. The last
    loop goes by steps of `step`.
    """
    if turns is None:
        return (0, 1) if len(symbols) > 1 else (0, 128)
    root = math.isqrt(turns)
    outside = 1
    for level, symbol in enumerate(symbols):
        is_last = level == len(symbols) - 1
        count = max(1, int(symbol.extent) // (step if is_last else 1))
        if is_last or outside * count >= root:
            length = count // max(1, root // outside)
            return level, max(16 if is_last else 1, length)
        outside *= count
    raise AssertionError("a stage that reduces has a loop")


def _loops(loops: Loops, symbols: Sequence[LoopSymbol], body: Callable[[], None]) -> None:
    """Plain loops over the whole extents of `symbols`, the first outermost."""
    if symbols:
        _loop(loops, symbols[0], lambda: _loops(loops, symbols[1:], body))
    else:
        body()


def _loop(loops: Loops, symbol: LoopSymbol, body: Callable[[], None]) -> None:
    """A plain loop over the whole extent of `symbol`."""
    scope = loops.scope
    count = symbol.extent
    stop = indexing.scalar(scope, count)
    with scope.loop((symbol,), scope.integer(0), stop, 1, runs=indexing.runs(count)):
        body()


def _reset(loops: Loops, running: Running) -> None:
    for accumulator in running.by_width.values():
        accumulator.here(loops.scope).reset(loops.scope.b)


def _step(loops: Loops, stage: Stage, running: Running) -> None:
    """Take the current element(s) in."""
    scope = loops.scope
    mask = None if scope.lanes is None or loops.plan.outer_lane is not None else scope.lanes.mask
    state: State = (running.value(),)
    if running.reducer.keeps_position:
        state = (*state, _position(loops, stage))
    width = scope.lane_count if scope.block is None else 1
    running.by_width[width].here(scope).take_in(scope.b, state, mask)


def _position(loops: Loops, stage: Stage) -> Register:
    """The row-major position of the current element(s) among the stage's inner loops."""
    scope = loops.scope
    place: Index = integer(0)
    for symbol in stage.inner:
        place = place * symbol.extent + symbol
    if scope.lanes is not None and scope.lanes.symbol in place.free():
        return indexing.vector(scope, place)
    return scope.spread(indexing.scalar(scope, place))


def _folded(loops: Loops, running: Running, lanes: int) -> State:
    """The accumulators of all widths as one state of `lanes` lanes, wide ones (earlier elements)
    first."""
    b = loops.scope.b
    state: State | None = None
    for width in sorted(running.by_width, reverse=True):
        accumulator = running.by_width[width].here(loops.scope)
        part = running.reducer.fold(b, accumulator.read(b), lanes)
        state = part if state is None else running.reducer.step(b, state, part)
    assert state is not None
    return state


def _result(loops: Loops, running: Running) -> State:
    """The reduction's result at the width of a local."""
    lanes = loops.scope.local_lanes
    if running.total is not None:
        total = running.total.here(loops.scope)
        return running.reducer.fold(loops.scope.b, total.read(loops.scope.b), lanes)
    return _folded(loops, running, lanes)


def _count(loops: Loops, stage: Stage, dtype: DType) -> Register:
    """The number of elements reduced, as a floating-point scalar."""
    total: Index = integer(1)
    for symbol in stage.inner:
        total = total * symbol.extent
    if total.is_constant:
        return loops.scope.b.constant(VectorType(REGISTER[dtype]), float(int(total)))
    return convert(loops.scope.b, indexing.scalar(loops.scope, total), DType.I64, dtype)
