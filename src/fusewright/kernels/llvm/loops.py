"""The loops of a kernel: over vector lanes with their masked tails, and the nests inside stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusewright.ir.group import Stage
from fusewright.ir.index import LoopSymbol, known_multiple
from fusewright.kernels.llvm import indexing
from fusewright.kernels.llvm.builder import Register, VectorType
from fusewright.kernels.llvm.plan import InnerPlan, KernelPlan
from fusewright.kernels.llvm.scope import Lanes, Scope
from fusewright.kernels.llvm.squares import in_squares
from fusewright.kernels.llvm.tiles import Squares
from fusewright.records import field, record


@record
class Loops:
    """Writes loops into a scope according to a plan."""

    plan: KernelPlan
    scope: Scope
    inner: Mapping[int, InnerPlan]
    """The plan of each stage, by identity."""

    middles: Mapping[tuple[LoopSymbol, int], tuple[int, int]] = field(default_factory=dict)
    """By lane loop and width of its steps, the part that is written by itself, because no condition
    changes in it.
    """

    def lane_loop_in_parts(
        self, lane: LoopSymbol, start: Register, stop: Register, wide: int, body: Callable[[], None]
    ) -> None:
        """`lane_loop`, its middle by itself. Not for reductions, whose accumulators are one for
        each width of step.
        """
        count = _constant_count(start, stop)
        middle = self.middles.get((lane, wide))
        if middle is None or start.text != "0" or lane.extent != count:
            self.lane_loop(lane, start, stop, wide, body)
            return
        low, high = middle
        for first, end in ((0, low), (low, high), (high, int(lane.extent))):
            if first < end:
                ends = self.scope.integer(first), self.scope.integer(end)
                self.lane_loop(lane, *ends, wide, body)

    def lane_loop(
        self, lane: LoopSymbol, start: Register, stop: Register, wide: int, body: Callable[[], None]
    ) -> None:
        """Steps of `wide` lanes, then masked steps of one register for what is left. Where there is
        certainly something, what both need stands before both.
        """
        scope = self.scope
        certain = start.text == "0" and indexing.runs(lane.extent)
        narrow = self.plan.lanes
        count = _constant_count(start, stop)
        if narrow == 1:
            with scope.loop((lane,), start, stop, 1, runs=bool(count)):
                body()
            return
        if count is not None and narrow < count < wide:
            self._masked_loop(lane, start, stop, wide, runs=True, body=body)
            return
        main_stop, runs = self._main_stop(lane, start, stop, wide, count)
        if count is None or count >= wide:
            with scope.loop((lane,), start, main_stop, wide, runs=runs, confines=not certain):
                self._with_lanes(Lanes(lane, wide, None, ends=_ends(start, main_stop)), body)
        if known_multiple(lane.extent, wide) if count is None else count % wide == 0:
            return
        runs = count is not None
        self._masked_loop(lane, main_stop, stop, narrow, runs=runs, body=body, confines=not certain)

    def _masked_loop(
        self,
        lane: LoopSymbol,
        start: Register,
        stop: Register,
        lanes: int,
        *,
        runs: bool,
        body: Callable[[], None],
        confines: bool = True,
    ) -> None:
        """Steps whose lanes past the end are masked."""
        scope, b = self.scope, self.scope.b
        with scope.loop((lane,), start, stop, lanes, runs=runs, confines=confines) as first:
            count = _constant_count(first, stop)
            if count is None:
                left = b.cast("trunc", stop - first, "i32")
                mask = b.vector("i32", range(lanes)) < b.splat(left, lanes)
            else:
                mask = b.constant(VectorType("i1", lanes), True)
                if count < lanes:
                    mask = b.vector("i1", [number < count for number in range(lanes)])
            self._with_lanes(Lanes(lane, lanes, mask, count, _ends(start, stop)), body)

    def _main_stop(
        self, lane: LoopSymbol, start: Register, stop: Register, wide: int, count: int | None
    ) -> tuple[Register, bool]:
        """The end of whole steps, and whether there is certainly one."""
        scope = self.scope
        if count is not None:
            return scope.integer(int(start.text) + count // wide * wide), count >= wide
        if known_multiple(lane.extent, wide):
            return stop, False
        with scope.at(max(start.level, stop.level)):
            whole = (stop - start) & -wide
            main_stop = start + whole
        return main_stop, False

    def _with_lanes(self, lanes: Lanes, body: Callable[[], None]) -> None:
        scope = self.scope
        outer_lanes, scope.lanes = scope.lanes, lanes
        scope.b.inlines = lanes.mask is None or not lanes.mask.text.startswith("%")
        body()
        scope.b.inlines = True
        scope.lanes = outer_lanes

    def over_lanes(self, body: Callable[[], None]) -> None:
        """`body` on all lanes of the current block; where there is none, on the lanes at hand."""
        scope, block = self.scope, self.scope.block
        if block is None:
            body()
            return

        def on_lanes() -> None:
            scope.local_lanes = scope.lane_count
            body()

        self.lane_loop(block.symbol, block.start, block.stop, self.plan.wide, on_lanes)

    def inner_loops(self, stage: Stage, body: Callable[[], None], *, in_parts: bool) -> None:
        """The inner loops of a stage around `body`, the lane loop innermost, maybe in parts."""
        own = self.inner[id(stage)]
        plain = self.plain_loops(stage)
        self.nest(plain, own.lane, own.wide, body, in_parts=in_parts, squares=own.squares)

    def plain_loops(self, stage: Stage) -> list[LoopSymbol]:
        """The loops of a stage but that over lanes; one that goes in squares is the last."""
        own = self.inner[id(stage)]
        turned = None if own.squares is None else own.squares.symbol
        apart = [symbol for symbol in stage.inner if symbol not in (own.lane, turned)]
        return apart if turned is None else [*apart, turned]

    def nest(
        self,
        plain: Sequence[LoopSymbol],
        lane: LoopSymbol | None,
        wide: int,
        body: Callable[[], None],
        *,
        in_parts: bool = False,
        squares: Squares | None = None,
    ) -> None:
        """A loop for each of `plain`, outermost first, then that over lanes."""
        scope = self.scope
        if plain:
            count = plain[0].extent
            stop = indexing.scalar(scope, count)

            def rest() -> None:
                self.nest(plain[1:], lane, wide, body, in_parts=in_parts, squares=squares)

            runs = indexing.runs(count)
            self.turns(plain[0], scope.integer(0), stop, rest, squares, runs=runs)
            return
        if lane is None:
            self.over_lanes(body)
            return
        stop = indexing.scalar(scope, lane.extent)
        loop = self.lane_loop_in_parts if in_parts else self.lane_loop
        loop(lane, scope.integer(0), stop, wide, body)

    def turns(
        self,
        symbol: LoopSymbol,
        start: Register,
        stop: Register,
        body: Callable[[], None],
        squares: Squares | None,
        *,
        runs: bool,
    ) -> None:
        """The turns of one plain loop: in squares as long as they fit, if it goes in some and all
        lanes are inside of theirs, then one by one. `runs`: there is at least one.
        """
        scope = self.scope
        is_full = scope.lanes is not None and scope.lanes.mask is None
        if squares is not None and squares.symbol is symbol and is_full:
            side = self.plan.lanes
            end = in_squares(scope, squares, side, start, stop, lambda *_: body())
            if end is stop:
                return
            start, runs = end, False
        with scope.loop((symbol,), start, stop, 1, runs=runs):
            body()


def _ends(start: Register, stop: Register) -> tuple[int, int] | None:
    """The first and the last number between two constants."""
    if _constant_count(start, stop) is None:
        return None
    return int(start.text), int(stop.text) - 1


def _constant_count(start: Register, stop: Register) -> int | None:
    """The number of turns of a loop whose ends are both constants."""
    if start.text.startswith("%") or stop.text.startswith("%"):
        return None
    return int(stop.text) - int(start.text)
