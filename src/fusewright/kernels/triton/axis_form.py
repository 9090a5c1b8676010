"""Rewrites a group from loops to axes, and rows that a tile does not hold to their values again.

Before, with blocks too small to hold the row `e`:
```
stage over [r0<8192]
  store e[r0] = exp(load x[8192*i0 + r0])
  reduce s = sum exp(load x[8192*i0 + r0])
stage over [r0<8192]
  store y[8192*i0 + r0] = div(load e[r0], load s[0])
```
After:
```
stage over r
  reduce s = sum exp(load x[8192*x + r])
stage over r
  store y[8192*x + r] = div(exp(load x[8192*x + r]), load s[0])
```
"""

from __future__ import annotations

from collections.abc import Mapping

from fusewright.ir.group import Accumulate, Action, Gather, Group, Reduce, ScanStore, Stage, Store
from fusewright.ir.index import Index, Symbol
from fusewright.ir.value import Expressions, Indirect, Load, Value, place_of, postorder
from fusewright.kernels.triton.tiling import TileAxis, Tiling
from fusewright.records import record


class CannotRecompute(Exception):
    """A row is too long to be held, and what it is made from was overwritten: no kernel."""


@record
class AxisStage:
    """A stage over one axis, or over none."""

    inner: TileAxis | None
    actions: tuple[Action, ...]


@record
class _Row:
    """The content of a row local: `value` at element `index`, both over `axis`."""

    axis: TileAxis
    index: Index
    value: Value
    stage: int
    is_scan: bool


def axis_stages(group: Group, tiling: Tiling) -> tuple[AxisStage, ...]:
    """The stages of a group over the axes of its tiling."""
    return _Rewriter(group, tiling).stages()


def can_be_written(group: Group, tiling: Tiling) -> bool:
    """Whether rows that are not held can be computed again."""
    try:
        axis_stages(group, tiling)
    except CannotRecompute:
        return False
    return True


def holds_all_rows(group: Group, tiling: Tiling) -> bool:
    """Whether a tile holds every row wherever it is read: also one that holds rows whole computes
    a row again for a stage over another axis.
    """
    if not tiling.persistent:
        return False
    rewriter = _Rewriter(group, tiling)
    try:
        rewriter.stages()
    except CannotRecompute:
        return False
    return not rewriter.computes_again


class _Rewriter:
    """Rewrites the stages in order, remembering what rows hold."""

    def __init__(self, group: Group, tiling: Tiling) -> None:
        self.group = group
        self.tiling = tiling
        self.expressions = Expressions()
        self.row_names = {local.name for local in group.locals if local.size}
        self.rows: dict[str, _Row] = {}
        self.computes_again = False
        self.place = 0

    def stages(self) -> tuple[AxisStage, ...]:
        results = []
        for place, stage in enumerate(self.group.stages):
            self.place = place
            results.append(self.stage(stage))
        return tuple(results)

    def stage(self, stage: Stage) -> AxisStage:
        axis = self.tiling.inner[self.place]
        loops = self.tiling.loops[self.place]
        actions = [self.action(action, loops) for action in stage.actions]
        for action in actions:
            if not isinstance(action, Reduce) and action.buffer in self.row_names:
                assert axis is not None, f"row {action.buffer} is stored outside a loop"
                is_scan = isinstance(action, ScanStore)
                row = _Row(axis, action.index, action.value, self.place, is_scan)
                self.rows[action.buffer] = row
        needed = [action for action in actions if self.is_kept(action)]
        return AxisStage(axis, tuple(needed))

    def is_kept(self, action: Action) -> bool:
        """A row that no tile holds needs no store."""
        is_row = isinstance(action, Store) and action.buffer in self.row_names
        return self.tiling.persistent or not is_row

    def action(self, action: Action, loops: Mapping[Symbol, Index]) -> Action:
        match action:
            case Store(buffer=buffer, index=index, value=value):
                value = self.value(value, loops)
                return Store(buffer=buffer, index=index.substitute(loops), value=value)
            case ScanStore(buffer=buffer, index=index, kind=kind, value=value):
                value, place = self.value(value, loops), index.substitute(loops)
                return ScanStore(buffer=buffer, index=place, kind=kind, value=value)
            case Gather(buffer=buffer, index=index, kind=kind, value=value):
                value, place = self.value(value, loops), index.substitute(loops)
                return Gather(buffer=buffer, index=place, kind=kind, value=value)
            case Reduce(targets=targets, kind=kind, value=value):
                return Reduce(targets=targets, kind=kind, value=self.value(value, loops))
            case Accumulate(buffer=buffer, index=index, mode=mode, value=value):
                loaded = {
                    indirect.symbol: place_of(self.value(indirect, loops))
                    for indirect in action.indirect
                    if isinstance(indirect, Indirect)
                }
                place = index.substitute({**loops, **loaded})
                return Accumulate(
                    buffer=buffer,
                    index=place,
                    indirect=self.expressions.behind(place),
                    mode=mode,
                    value=self.value(value, loops),
                )

    def value(self, value: Value, loops: Mapping[Symbol, Index]) -> Value:
        return self.expressions.rewrite(value, loops, self.load)

    def load(self, load: Load) -> Value | None:
        """A row held by the tile stays a load; any other is computed again."""
        row = self.rows.get(load.buffer)
        if row is None:
            return None
        axis = self.tiling.inner[self.place]
        if self.tiling.persistent and row.axis == axis and row.index == load.index:
            return None
        self.computes_again = True
        if row.is_scan:
            raise CannotRecompute(f"{load.buffer} gathers a row")
        if row.index != row.axis.symbol.index:
            raise CannotRecompute(f"row {load.buffer} is stored at {row.index}, not in order")
        self.require_intact(load.buffer, row)
        return self.expressions.rewrite(row.value, {row.axis.symbol: load.index}, self.load)

    def require_intact(self, name: str, row: _Row) -> None:
        """Require that the operands of a row are still in memory."""
        overwritten = set()
        for stage in self.group.stages[row.stage : self.place]:
            overwritten |= {a.buffer for a in stage.actions if not isinstance(a, Reduce)}
        overwritten |= {read for written, read in self.group.reuses if written in overwritten}
        overwritten -= self.row_names
        for node in postorder((row.value,)):
            if isinstance(node, Load) and node.buffer in overwritten:
                raise CannotRecompute(f"row {name} reads {node.buffer}, which was overwritten")
