"""Loops as few and as regular as they can be: ordered by stride, contiguous ones merged, canonical names.

Before (unit loops are gone already, see `nest.nest_of`):
```
nest [i0<2, i1<32, i2<6, i3<6]
  store y[1152*i0 + 36*i1 + 6*i2 + i3]:  exp(x[1152*i0 + 36*i1 + 6*i2 + i3])
```
After:
```
nest [i0<2304]
  store y[i0]:  exp(x[i0])
```
Two loops merge when, in every access, one step of the outer is the inner's whole way. Channels-last memory is walked
in its own order, whatever order the dimensions have:
```
nest [i0<8, i1<3, i2<49]                          nest [i0<8, i1<49, i2<3]
  store y[147*i0 + i1 + 3*i2]: f(c[i1])      =>     store y[147*i0 + 3*i1 + i2]: f(c[i2])
```
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from fusewright.ir.index import Index, Symbol, integer, loop
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.nest import ORDERED_KINDS, Nest, Piece, Renaming, extent


def simplify(nest: Nest) -> Nest:
    """Order, merge, and name loops i0, i1, … and r0, r1, …"""
    return canonical(merge_loops(order_loops(nest)))


# Order -----------------------------------------------------------------------------------------------


def order_loops(nest: Nest) -> Nest:
    """Outer and inner loops, each by descending stride in the accesses that move most bytes."""
    accesses = _weighted_accesses(nest)
    outer = nest.outer
    if not any(piece.kind in ORDERED_KINDS - {"argmax", "argmin"} for piece in nest.pieces):
        outer = _best_order(outer, accesses, nest.analysis)
    # Pieces with the same inner loops walk them in the same order, so that they can share a stage.
    orders = {frozenset(p.inner): p.inner for p in nest.pieces if p.kind in ORDERED_KINDS}
    for piece in nest.pieces:
        if frozenset(piece.inner) not in orders:
            order = _best_order(piece.inner, accesses, nest.analysis)
            orders[frozenset(piece.inner)] = order
    pieces = tuple(_walk_in(piece, orders[frozenset(piece.inner)]) for piece in nest.pieces)
    if outer == nest.outer and all(new is old for new, old in zip(pieces, nest.pieces)):
        return nest
    return replace(nest, outer=outer, pieces=pieces)


def _walk_in(piece: Piece, inner: tuple[Symbol, ...]) -> Piece:
    if piece.inner == inner or piece.kind in ORDERED_KINDS:
        return piece
    return replace(piece, inner=inner)


def _weighted_accesses(nest: Nest) -> list[tuple[Index, int]]:
    """Every access to memory with the bytes behind it; writes first, for they win where the bytes are equal."""
    analysis = nest.analysis
    found: dict[tuple[str, Index], int] = {}
    for piece in nest.pieces:
        for write in piece.writes:
            found[write.buffer, write.index] = analysis.bytes(write.buffer)
    for piece in nest.pieces:
        for load in piece.loads(analysis):
            found.setdefault((load.buffer, load.index), analysis.bytes(load.buffer))
    return [(index, weight) for (_, index), weight in found.items()]


def _best_order(
    loops: tuple[Symbol, ...], accesses: Sequence[tuple[Index, int]], analysis: Analysis
) -> tuple[Symbol, ...]:
    """Of the orders that single accesses would like, the one that is contiguous for the most bytes."""
    if len(loops) < 2:
        return loops
    strides = [
        (weight, [_stride_hint(index, symbol, analysis) for symbol in loops])
        for index, weight in accesses
    ]
    strides = [(weight, steps) for weight, steps in strides if any(steps)]
    best, best_score = tuple(range(len(loops))), -1
    tried: set[tuple[int, ...]] = set()
    for _, steps in strides:
        # A loop that an access does not move along keeps its place beside its outer neighbour.
        order = tuple(sorted(range(len(loops)), key=lambda k: (-_effective(steps, k), k)))
        if order in tried:
            continue
        tried.add(order)
        score = sum(weight for weight, other in strides if other[order[-1]] in (0, 1))
        if score > best_score:
            best, best_score = order, score
    return tuple(loops[k] for k in best)


def _effective(steps: list[int], position: int) -> int:
    """The stride of a loop, or of the nearest loop outside it that has one."""
    for k in range(position, -1, -1):
        if steps[k]:
            return steps[k]
    return max(steps)


def _stride_hint(index: Index, symbol: Symbol, analysis: Analysis) -> int:
    """The absolute stride by hints; 0 where the loop does not occur; a large one where it is irregular."""
    stride = index.stride(symbol)
    if stride is None or any(s.extent is not None for s in stride.free()):
        return 1 << 40
    return abs(analysis.hint(stride))


# Merge -----------------------------------------------------------------------------------------------


def merge_loops(nest: Nest) -> Nest:
    """Merge neighbouring loops that every access walks as one."""
    chains = [*_chains(nest)]
    renaming: dict[Symbol, Index] = {}
    merged: dict[Symbol, Symbol | None] = {}
    for chain in chains:
        total = integer(1)
        for symbol in chain:
            total = total * extent(symbol)
            renaming[symbol] = integer(0)
            merged[symbol] = None
        whole = loop(chain[0].name, total)
        renaming[chain[-1]] = whole.index
        merged[chain[-1]] = whole
    if not chains:
        return nest
    return apply_to_loops(nest, renaming, merged)


def _chains(nest: Nest) -> Iterator[list[Symbol]]:
    """Runs of two or more neighbouring loops that merge."""
    indices = dict.fromkeys(i for piece in nest.pieces for i in piece.indices(nest.analysis))
    lists = dict.fromkeys((nest.outer, *(piece.inner for piece in nest.pieces)))
    seen: set[Symbol] = set()
    for symbols in lists:
        chain = list(symbols[:1])
        for before, after in zip(symbols, symbols[1:], strict=False):
            if (
                before not in seen
                and _always_together(before, after, lists)
                and all(_walks_as_one(index, before, after) for index in indices)
            ):
                chain.append(after)
                continue
            if len(chain) > 1 and chain[0] not in seen:
                yield chain
            chain = [after]
        if len(chain) > 1 and chain[0] not in seen:
            yield chain
        seen.update(symbols)


def _always_together(
    before: Symbol, after: Symbol, lists: dict[tuple[Symbol, ...], None]
) -> bool:
    """Whether every list of loops that has one of the two has both, side by side."""
    for symbols in lists:
        if before in symbols or after in symbols:
            place = symbols.index(before) if before in symbols else len(symbols)
            if symbols[place + 1 : place + 2] != (after,):
                return False
    return True


def _walks_as_one(index: Index, before: Symbol, after: Symbol) -> bool:
    outer, inner = index.stride(before), index.stride(after)
    return outer is not None and inner is not None and outer == extent(after) * inner


# Names -----------------------------------------------------------------------------------------------


def canonical(nest: Nest) -> Nest:
    """Outer loops named i0, i1, … and inner ones r0, r1, …; a loop that pieces share keeps one name in all of them."""
    names = {symbol: f"i{k}" for k, symbol in enumerate(nest.outer)} | _inner_names(nest)
    if all(symbol.name == name for symbol, name in names.items()):
        return nest
    replacements = {symbol: loop(name, extent(symbol)) for symbol, name in names.items()}
    renaming = {old: new.index for old, new in replacements.items()}
    return apply_to_loops(nest, renaming, dict(replacements))


def _inner_names(nest: Nest) -> dict[Symbol, str]:
    """The lowest free r0, r1, … for each inner loop, free among the loops that it stands beside in any piece."""
    lists = dict.fromkeys(piece.inner for piece in nest.pieces)
    names: dict[Symbol, str] = {}
    for symbol in dict.fromkeys(symbol for symbols in lists for symbol in symbols):
        taken = {names.get(s) for symbols in lists if symbol in symbols for s in symbols}
        names[symbol] = next(n for k in count() if (n := f"r{k}") not in taken)
    return names


def apply_to_loops(
    nest: Nest, renaming: Renaming, replacements: dict[Symbol, Symbol | None]
) -> Nest:
    """Rename everywhere; in the lists of loops put each loop's replacement, or nothing for None."""

    def listed(symbols: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
        new = (replacements.get(symbol, symbol) for symbol in symbols)
        return tuple(symbol for symbol in new if symbol is not None)

    pieces: list[Piece] = []
    for piece in nest.pieces:
        pieces.append(piece.rename(renaming, listed(piece.inner), nest.analysis))
    return replace(nest, outer=listed(nest.outer), pieces=tuple(pieces))
