"""The work of one group as several kernels, whose rows are cut into chunks: partial results of the
chunks first, and then, where later stages need them, their combination.

```
group max_sub_exp_sum_div [i0<4]           group [i0<4, i1<32]
  local m: f32                               local m: f32
  local e: f32                               stage over [r0<2048]
  stage over [r0<65536]                        t0 = load x[65536*i0 + 2048*i1 + r0]
    t0 = load x[65536*i0 + r0]                 reduce m = max t0
    reduce m = max t0                        stage
  stage over [r0<65536]                        store m_parts[32*i0 + i1] = load m[0]
    …                                      group [i0<4, i1<32]
    reduce e = sum t3              →         stage over [r0<32]
  stage over [r0<65536]                        reduce m = max (load m_parts[32*i0 + r0])
    …                                        stage over [r0<2048]
    store y[65536*i0 + r0] = t5                …
                                           group [i0<4, i1<32]
                                             …
                                             store y[65536*i0 + 2048*i1 + r0] = t5
```

Each stage with loops of its own is a kernel. Partial results are combined anew wherever they are
needed, since they are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from fusewright.ir.chunks import Chunks, loop_to_cut, near_count
from fusewright.ir.contiguity import rows_lie_across
from fusewright.ir.group import Group, Local, Reduce, Stage, Store
from fusewright.ir.index import Index, LoopSymbol, Symbol, contiguous_strides, integer
from fusewright.ir.limits import Limits
from fusewright.ir.lines import CALLER
from fusewright.ir.neutral import NEUTRAL_ELEMENTS
from fusewright.ir.program import Buffer, Layout
from fusewright.ir.raising import value_may_raise
from fusewright.ir.value import Expressions, Load, Value
from fusewright.kernels.analysis import (
    SizeHints,
    extent_hint,
    loaded_in,
    rows_of,
    stage_values,
    stored_in,
)
from fusewright.kernels.language import Implementation, Write
from fusewright.records import record, replace


@record(kw_only=True)
class SplitGroup:
    """The parts of a group, in order, and the buffers that they hand to each other."""

    parts: tuple[Group, ...]
    temporaries: tuple[Buffer, ...]


def why_not_split(group: Group) -> str | None:
    """Why a group cannot be cut into chunks; None: it can."""
    if not any(stage.inner for stage in group.stages):
        return "no stage has loops of its own"
    if any(value_may_raise(value) for stage in group.stages for value in stage_values(stage)):
        return "it may raise"
    for stage in group.stages:
        for action in stage.actions:
            if isinstance(action, Reduce):
                if action.kind not in NEUTRAL_ELEMENTS or len(action.targets) != 1:
                    return f"{action.kind} is not put together of parts"
            elif not isinstance(action, Store):
                return "it scatters, or gives running totals"
    if any(not _same_element(stage, group) for stage in group.stages):
        return "memory that is taken over is read where it is written"
    if _moved_back(group):
        return "a stage without loops of its own reads or writes what others write or read"
    return None


def split_group(group: Group, count: int) -> SplitGroup | None:
    """A group as kernels whose rows are cut into about `count` chunks; None: it cannot be."""
    if why_not_split(group) is not None:
        return None
    splitter = _Splitter(group, count)
    return splitter.split()


class _Splitter:
    """Writes the parts of one group."""

    def __init__(self, group: Group, count: int) -> None:
        self.group = group
        self.count = count
        self.make = Expressions()
        self.locals = {local.name: local for local in group.locals}
        self.memory: dict[str, Buffer] = {}
        """By local, the buffer that holds its parts, or a row."""

        self.before: list[Stage] = []
        """Stages that give the scalars that later ones read."""

        self.is_first = is_across(group)
        """Whether the loop over chunks is the outermost: results lie next to each other along the
        others.
        """

    def split(self) -> SplitGroup | None:
        """The parts; None, where a row that is stored has no equal chunks."""
        parts: list[Group] = []
        at_end: list[Stage] = []
        for stage in self.group.stages:
            if not stage.inner:
                self._scalar_stage(stage, at_end)
                continue
            indices = [v.index for v in stage_values(stage) if isinstance(v, Load)]
            cut = loop_to_cut(stage.inner, self.count, indices, _size)
            count = near_count(cut.extent, min(self.count, _size(cut.extent)))
            stores = any(isinstance(action, Store) for action in stage.actions)
            if count < 2 or (stores and cut.extent % count != 0):
                return None
            chunks = Chunks(cut=cut, count=count, is_first=self.is_first)
            parts.append(self._part(stage, chunks))
        if at_end:
            parts.append(self._group(self.group.outer, [*self.before, *at_end]))
        return SplitGroup(parts=tuple(parts), temporaries=tuple(self.memory.values()))

    def _scalar_stage(self, stage: Stage, at_end: list[Stage]) -> None:
        """Add a stage of no loops: its scalars are computed in each part, and its stores to memory
        are made at the end.
        """
        own = self._rewritten(stage, {})
        scalars = [a for a in own.actions if isinstance(a, Store) and a.buffer in self.locals]
        others = tuple(action for action in own.actions if action not in scalars)
        if scalars:
            self.before.append(Stage(inner=(), actions=tuple(scalars)))
        if others:
            at_end.append(Stage(inner=(), actions=others))

    def _part(self, stage: Stage, chunks: Chunks) -> Group:
        """The kernel of a stage: each of its units computes one chunk."""
        loops = chunks.loops(self.group.outer, stage.inner)
        before = [self._rewritten(own, loops.renamed, is_own=True) for own in self.before]
        own = self._rewritten(stage, {**loops.renamed, chunks.cut: loops.place})
        actions = [
            replace(action, value=chunks.within(self.make, loops.place, action.kind, action.value))
            if isinstance(action, Reduce)
            else action
            for action in own.actions
        ]
        stages = [*before, Stage(inner=loops.inner, actions=tuple(actions))]
        reduced = [action for action in own.actions if isinstance(action, Reduce)]
        if reduced:
            stages.append(self._keep(reduced, loops.outer))
        part = self._group(loops.outer, stages)
        self.before += [self._total(action, chunks) for action in reduced]
        return part

    def _keep(self, reduced: Sequence[Reduce], outer: tuple[LoopSymbol, ...]) -> Stage:
        """The stage that stores the results of a chunk."""
        size = tuple(symbol.extent for symbol in outer)
        stores = []
        for action in reduced:
            (target,) = action.targets
            buffer = self._buffer(target, size)
            point = tuple(symbol.index for symbol in outer)
            value = self.make.load(target, 0, self.locals[target].dtype)
            stores.append(Store(buffer=buffer.name, index=buffer.layout.index(point), value=value))
        return Stage(inner=(), actions=tuple(stores))

    def _total(self, action: Reduce, chunks: Chunks) -> Stage:
        """The stage that puts the parts of a result together, at a point of the group's loops."""
        (target,) = action.targets
        buffer = self.memory[target]
        over = LoopSymbol("r0", chunks.count)
        point = chunks.point(over.index, self.group.outer)
        value = self.make.load(buffer.name, buffer.layout.index(point), buffer.layout.dtype)
        total = Reduce(targets=action.targets, kind=action.kind, value=value)
        return Stage(inner=(over,), actions=(total,))

    def _rewritten(
        self, stage: Stage, symbols: Mapping[Symbol, Index], *, is_own: bool = False
    ) -> Stage:
        """A stage with other loops, whose rows lie in memory. `is_own`: it was rewritten before."""

        def moved(load: Load) -> Value | None:
            local = self.locals.get(load.buffer)
            if is_own or local is None or not local.size:
                return None
            buffer, index = self._row(local, load.index, symbols)
            return self.make.load(buffer.name, index, local.dtype)

        actions: list[Reduce | Store] = []
        for action in stage.actions:
            assert isinstance(action, Reduce | Store)
            value = self.make.rewrite(action.value, symbols, moved)
            if isinstance(action, Reduce):
                actions.append(replace(action, value=value))
                continue
            index, local = action.index.substitute(symbols), self.locals.get(action.buffer)
            name = action.buffer
            if local is not None and local.size and not is_own:
                buffer, index = self._row(local, index, symbols)
                name = buffer.name
            actions.append(Store(buffer=name, index=index, value=value))
        return Stage(inner=stage.inner, actions=tuple(actions))

    def _row(
        self, local: Local, index: Index, symbols: Mapping[Symbol, Index]
    ) -> tuple[Buffer, Index]:
        """The buffer that holds a row of each point, and where in it an element lies."""
        outer = self.group.outer
        buffer = self.memory.get(local.name) or self._buffer(
            local.name, (*(symbol.extent for symbol in outer), prod(local.size, start=integer(1)))
        )
        point = (*(symbol.index.substitute(symbols) for symbol in outer), index)
        return buffer, buffer.layout.index(point)

    def _buffer(self, local: str, size: tuple[Index, ...]) -> Buffer:
        layout = Layout(
            dtype=self.locals[local].dtype,
            size=size,
            stride=contiguous_strides(size),
            device=CALLER,
        )
        buffer = Buffer(name=f"{local}_parts", layout=layout)
        self.memory[local] = buffer
        return buffer

    def _group(self, outer: tuple[LoopSymbol, ...], stages: Sequence[Stage]) -> Group:
        """A group of these stages, with the locals and buffers that they use."""
        used = self._needed(stages)
        read, written = loaded_in(*used), stored_in(*used)
        known = {b.name: b for b in (*self.group.reads, *self.group.writes)}
        device = self.group.device
        known |= {
            buffer.name: replace(
                buffer, layout=replace(buffer.layout, size=(), stride=(), device=device)
            )
            for buffer in self.memory.values()
        }
        reuses = tuple((w, r) for w, r in self.group.reuses if w in written and r in read)
        return Group(
            name=self.group.name,
            outer=outer,
            locals=tuple(
                local
                for local in self.group.locals
                if local.name in read | written and not local.size
            ),
            stages=tuple(used),
            reads=tuple(buffer for name, buffer in known.items() if name in read),
            writes=tuple(buffer for name, buffer in known.items() if name in written),
            reuses=reuses,
        )

    def _needed(self, stages: Sequence[Stage]) -> list[Stage]:
        """The stages without those that give nothing but scalars which nobody behind them reads."""
        kept: list[Stage] = []
        wanted: set[str] = set()
        for stage in reversed(stages):
            targets = stored_in(stage)
            if targets & wanted or not targets <= self.locals.keys():
                kept.append(stage)
                wanted |= loaded_in(stage)
        return kept[::-1]


def tiles_of(group: Group, limits: Limits, hints: SizeHints) -> tuple[int, int]:
    """The tiles of rows that are computed together, and the elements that each gathers; guessed
    where sizes have no hint.
    """
    rows, length = rows_of(group, hints)
    lanes = limits.lanes if is_across(group) else 1
    return -(-rows // lanes), length * lanes


def in_chunks(group: Group, count: int, write: Write) -> list[Implementation]:
    """The way to do the work of a group in about `count` chunks; none: it cannot be cut."""
    split = split_group(group, count)
    if split is None:
        return []
    parts, temporaries = split.parts, split.temporaries
    return [Implementation(name="split", write=write, parts=parts, temporaries=temporaries)]


def _same_element(stage: Stage, group: Group) -> bool:
    """Whether a stage reads memory that it takes over only where it writes it."""
    stores = {a.buffer: a.index for a in stage.actions if isinstance(a, Store)}
    taken = {read: stores[written] for written, read in group.reuses if written in stores} | stores
    loads = [value for value in stage_values(stage) if isinstance(value, Load)]
    return all(taken.get(load.buffer, load.index) == load.index for load in loads)


def _moved_back(group: Group) -> bool:
    """Whether it matters that stages without loops of their own are done later, or once more: they
    read memory that is written to, or write memory that is read.
    """
    taken = {read for _, read in group.reuses}
    written = stored_in(*group.stages) - {local.name for local in group.locals}
    for stage in group.stages:
        if not stage.inner:
            own, read = stored_in(stage) & written, loaded_in(stage)
            others = [other for other in group.stages if other is not stage]
            if read & (taken | written) or own & loaded_in(*others):
                return True
    return False


def is_across(group: Group) -> bool:
    """Whether the rows of a group lie across memory."""
    loads = [
        (value.index, stage.inner)
        for stage in group.stages
        for value in stage_values(stage)
        if isinstance(value, Load)
    ]
    return rows_lie_across(loads, group.outer, extent_hint)


def _size(size: Index) -> int:
    return int(size) if size.is_constant else 1 << 62
