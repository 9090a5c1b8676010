"""The working form of scheduling: a Nest of outer loops around pieces, every value still in terms
of buffers.

A piece is one body of the program. Its writes and loads name elements of buffers in memory; only
when a nest becomes a `Group` do the buffers that nobody else reads turn into locals. So fusing is
no more than putting two nests over the same outer loops, and loop variables are bound names that
may be chosen freely:

```
nest [i0<256]
  sum   s[i0] over [r0<768]:  x[768*i0 + r0]
  store y[768*i0 + r0] over [r0<768]:  x[768*i0 + r0] / s[i0]
```
So it is put in short, here and above the passes; `text` prints it in full and reads it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import ClassVar

from fusewright.ir.index import Index, LoopSymbol, Symbol, integer
from fusewright.ir.products import DOT
from fusewright.ir.program import (
    ComputedBuffer,
    Pointwise,
    Reduction,
    RowStatement,
    Scan,
    Scatter,
)
from fusewright.ir.value import Constant, IndexValue, Indirect, Load, Value
from fusewright.records import record, replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import Effects, statement_effects
from fusewright.schedule.invert import are_nested

Renaming = Mapping[Symbol, Index]
"""Loop variables, and what stands in their place."""

ORDERED_KINDS = frozenset({"argmax", "argmin", "scatter", "scan"})
"""Kinds whose result depends on the order of their loops."""


_KINDS_OF_ONE = frozenset({"sum", DOT, "prod", "max", "min", "any", "all", "xor"})
"""Reductions that are the value itself when there is one value."""


@record
class Access:
    """One element of a buffer, as a function of the loops around it."""

    buffer: str
    index: Index
    is_affine: bool = True
    """False where the index contains loaded values."""

    def rename(self, renaming: Renaming, analysis: Analysis) -> Access:
        index = analysis.substitute(self.index, renaming)
        return self if index is self.index else Access(self.buffer, index, self.is_affine)


@record(eq=False, kw_only=True, slots=False)
class Piece:
    """One body inside the outer loops of a nest."""

    form: ClassVar = "piece[over {inner:loops}][into {base:buffer}]"

    kind: str
    """store, scatter, scan, gather, or a key of `ops.REDUCTION_KINDS`."""

    mode: str = ""
    """The way in which a scatter combines a value with the one in memory; the kind of a scan, or of
    what is gathered along outer loops.
    """

    writes: tuple[Access, ...]
    inner: tuple[LoopSymbol, ...] = ()
    value: Value
    place: Value | None = None
    """The element that a scatter writes, as an index value."""

    base: str = ""
    """The buffer whose memory a scatter takes over."""

    position: int
    """The position of its statement in the program; pieces keep this order among themselves.
    Several pieces of one statement write parts of its buffer.
    """

    @property
    def is_store(self) -> bool:
        return self.kind == "store"

    @property
    def is_scan(self) -> bool:
        return self.kind == "scan"

    @property
    def is_reduction(self) -> bool:
        return self.kind not in ("store", "scatter", "scan", "gather")

    @property
    def roots(self) -> tuple[Value, ...]:
        """The values that the piece evaluates at each point."""
        return (self.value,) if self.place is None else (self.place, self.value)

    def loads(self, analysis: Analysis) -> Iterator[Load]:
        for root in self.roots:
            yield from analysis.loads(root)

    def indices(self, analysis: Analysis) -> Iterator[Index]:
        """Every index expression that depends on the loops."""
        for root in self.roots:
            yield from analysis.indices(root)
        for write in self.writes:
            yield write.index

    def rename(
        self, renaming: Renaming, inner: tuple[LoopSymbol, ...], analysis: Analysis
    ) -> Piece:
        """The piece with loop variables replaced, inside the inner loops `inner`."""
        if all(symbol.index == index for symbol, index in renaming.items()):
            return self if inner == self.inner else replace(self, inner=inner)
        substitute = analysis.expressions.substitute
        return replace(
            self,
            writes=tuple(w.rename(renaming, analysis) for w in self.writes),
            inner=inner,
            value=substitute(self.value, renaming),
            place=None if self.place is None else substitute(self.place, renaming),
        )


@record(eq=False, kw_only=True, slots=False)
class Nest:
    """Pieces that share their outer loops; one becomes one group."""

    form: ClassVar = "nest {outer:loops}"

    outer: tuple[LoopSymbol, ...]
    pieces: tuple[Piece, ...]
    """The pieces, in the order of their statements."""

    analysis: Analysis

    @cached_property
    def device(self) -> str:
        """The device of the nest: that of all that it writes and loads."""
        return self.analysis.buffers[self.pieces[0].writes[0].buffer].layout.device

    @cached_property
    def written(self) -> dict[str, tuple[tuple[Piece, Access], ...]]:
        """Each buffer that the nest writes, with every place that does: one, or one for each of the
        parts of a buffer that its points write at once (`parts`).
        """
        accesses: dict[str, list[tuple[Piece, Access]]] = {}
        for piece in self.pieces:
            for write in piece.writes:
                accesses.setdefault(write.buffer, []).append((piece, write))
        return {name: tuple(places) for name, places in accesses.items()}

    @cached_property
    def loaded(self) -> dict[str, tuple[tuple[Piece, Access], ...]]:
        """Each buffer that the nest loads, with every place that does."""
        accesses: dict[str, list[tuple[Piece, Access]]] = {}
        for piece in self.pieces:
            for load in piece.loads(self.analysis):
                access = Access(load.buffer, load.index, not load.indirect)
                accesses.setdefault(load.buffer, []).append((piece, access))
        return {name: tuple(places) for name, places in accesses.items()}

    def replace_loads(self, replaced: Callable[[Load], Value | None]) -> Nest:
        """The nest with the loads for which `replaced` gives a value replaced by it."""
        rewrite = self.analysis.expressions.rewrite
        pieces = tuple(
            replace(
                piece,
                value=rewrite(piece.value, {}, replaced),
                place=None if piece.place is None else rewrite(piece.place, {}, replaced),
            )
            for piece in self.pieces
        )
        return replace(self, pieces=pieces)

    @cached_property
    def is_pointwise(self) -> bool:
        """Whether every piece is a store, so that outer loops may become inner ones."""
        return all(piece.is_store for piece in self.pieces)

    @cached_property
    def is_product(self) -> bool:
        """Whether it computes a matrix product."""
        return any(piece.kind == DOT for piece in self.pieces)

    @cached_property
    def computes_operands(self) -> bool:
        """Whether it computes the operands of the matrix product that it is."""
        return not self.written.keys().isdisjoint(self.analysis.products_that_compute)

    @cached_property
    def gathers_columns(self) -> bool:
        """Whether it adds up columns, which programs of stripes do beside rows (`stripes`): what
        both read is better computed where the rows are.
        """
        return self.analysis.limits_of(self.device).stripes > 0 and any(
            self.analysis.stride(load.index, loop) == 1
            for piece in self.pieces
            if piece.is_reduction and piece.inner
            for load in piece.loads(self.analysis)
            for loop in self.outer
        )

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of all loops."""
        inner = (symbol.name for piece in self.pieces for symbol in piece.inner)
        return frozenset((*(symbol.name for symbol in self.outer), *inner))


Step = Nest | RowStatement
"""An item of the order: a nest, which becomes a group, or a statement that is none."""


def step_effects(step: Step, analysis: Analysis) -> Effects:
    """The effects of a step on memory."""
    if not isinstance(step, Nest):
        effects = analysis.effects.get(id(step))
        if effects is None:
            effects = analysis.effects[id(step)] = statement_effects(step)
        return effects
    bases = tuple(piece.base for piece in step.pieces if piece.base)
    return Effects(tuple(step.loaded), tuple(step.written), bases)


def nest_of(statement: ComputedBuffer, position: int, analysis: Analysis) -> Nest:
    """The nest that holds just this statement, with the loops that its body has."""
    outer, inner, piece = _piece_of(statement, position, analysis)
    if all(symbol.extent == 1 for symbol in inner):
        if piece.kind in _KINDS_OF_ONE:
            piece = replace(piece, kind="store")
        elif piece.is_scan:
            value = _scan_of_one(piece, analysis)
            piece = replace(piece, kind="store", mode="", value=value)
    return Nest(outer=outer, pieces=(piece,), analysis=analysis)


def _piece_of(
    statement: ComputedBuffer, position: int, analysis: Analysis
) -> tuple[tuple[LoopSymbol, ...], tuple[LoopSymbol, ...], Piece]:
    """Outer loops, inner loops, and the piece."""
    match statement.body:
        case Pointwise(loops=loops, value=value):
            writes = _writes(statement, loops, analysis)
            piece = Piece(kind="store", writes=writes, inner=(), value=value, position=position)
            return loops, (), piece
        case Reduction(loops=loops, reduction_loops=inner, kind=kind, value=value):
            writes = _writes(statement, loops, analysis)
            piece = Piece(kind=kind, writes=writes, inner=inner, value=value, position=position)
            return loops, inner, piece
        case Scan(loops=loops, along=along, kind=kind, value=value):
            writes = _writes(statement, loops, analysis)
            piece = Piece(
                kind="scan",
                mode=kind,
                writes=writes,
                inner=(along,),
                value=value,
                position=position,
            )
            return tuple(symbol for symbol in loops if symbol != along), (along,), piece
        case Scatter(loops=loops, base=base, index=index, mode=mode, value=value):
            place = analysis.expressions.index(index)
            inner = _meeting_loops(statement.body, analysis)
            piece = Piece(
                kind="scatter",
                mode=mode,
                writes=(Access(statement.outputs[0].name, index, is_affine=False),),
                inner=inner,
                value=value,
                place=place,
                base=base,
                position=position,
            )
            return tuple(symbol for symbol in loops if symbol not in inner), inner, piece


def _scan_of_one(piece: Piece, analysis: Analysis) -> Value:
    """The result of a scan over one element."""
    make, value = analysis.expressions, piece.value
    if piece.mode in ("sum", "logsumexp") and value.dtype.is_float:
        value = make.apply("add", value, make.constant(0.0, value.dtype))  # no sum is -0.0
    return make.cast(value, analysis.buffers[piece.writes[0].buffer].layout.dtype)


def _meeting_loops(body: Scatter, analysis: Analysis) -> tuple[LoopSymbol, ...]:
    """The loops of a scatter whose points may meet in one element: all but those that an element
    tells, as digits of its index. They stay inside, in order, unless the device adds atomically.
    """
    if analysis.limits(body.base).adds_atomically:
        return ()
    loaded = {v.symbol: v.size for v in body.indirect if isinstance(v, Indirect)}
    extents: dict[Symbol, Index] = {symbol: symbol.extent for symbol in body.loops} | loaded
    digits = [symbol for symbol in extents if symbol in body.index.free()]
    steps = [(extents[symbol], analysis.stride(body.index, symbol)) for symbol in digits]
    known = [(extent, stride) for extent, stride in steps if stride is not None]
    known.sort(key=lambda step: -analysis.hint(step[1]))
    if len(known) < len(steps) or not are_nested(known):
        return body.loops
    return tuple(symbol for symbol in body.loops if symbol not in digits)


def _writes(
    statement: ComputedBuffer, loops: tuple[LoopSymbol, ...], analysis: Analysis
) -> tuple[Access, ...]:
    return tuple(Access(b.name, analysis.element(b.layout, loops)) for b in statement.outputs)


def place_index(piece: Piece) -> tuple[Index, tuple[Value, ...]]:
    """The place that a scatter writes: the element, and the values behind loaded symbols in it."""
    match piece.place:
        case IndexValue(index=index, indirect=indirect):
            return index, indirect
        case Constant(value=value):
            return integer(int(value)), ()
        case _:
            raise TypeError("only a scatter has a place")
