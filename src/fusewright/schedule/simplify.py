"""Loops as few and as regular as they can be: ordered by stride, contiguous ones merged, canonical
names.

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
Two loops merge when, in every access, one step of the outer is the inner's whole way. Channels-last
memory is walked in its own order, whatever order the dimensions have:
```
nest [i0<8, i1<3, i2<49]                          nest [i0<8, i1<49, i2<3]
  store y[147*i0 + i1 + 3*i2]: f(c[i1])      =>     store y[147*i0 + 3*i1 + i2]: f(c[i2])
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from fusewright.ir.index import Index, LoopSymbol, Symbol, extent, integer
from fusewright.records import record, replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.nest import ORDERED_KINDS, Nest

Loops = tuple[LoopSymbol, ...]

Accesses = tuple[tuple[Index, int], ...]
"""Indices of accesses to memory, each with the bytes of the buffer behind it."""

Chains = Mapping[LoopSymbol, Loops]
"""Loops that become one, by the outermost of them."""


def simplify(nest: Nest) -> Nest:
    """Drop unit loops, order and merge the others, and name them i0, i1, … and r0, r1, …; values
    are rewritten once.
    """
    accesses = _weighted_accesses(nest)
    indices = tuple(i for piece in nest.pieces for i in piece.indices(nest.analysis))
    kinds = tuple((piece.inner, piece.kind) for piece in nest.pieces)
    key = (nest.outer, kinds, accesses, indices)
    # The layers of a network look alike: what was decided for one holds for all.
    plan = nest.analysis.plans.get(key)
    if plan is None:
        plan = nest.analysis.plans[key] = _plan(nest, accesses, dict.fromkeys(indices))
    assert isinstance(plan, LoopChanges)
    if plan.changes_nothing:
        return nest
    pieces = tuple(
        piece.rename(plan.renaming, plan.inner[piece.inner], nest.analysis) for piece in nest.pieces
    )
    return replace(nest, outer=plan.outer, pieces=pieces)


@record
class LoopChanges:
    """The new loops of a nest."""

    outer: Loops
    inner: Mapping[Loops, Loops]
    """New inner loops, by old ones."""

    renaming: Mapping[Symbol, Index]
    changes_nothing: bool


def _plan(nest: Nest, accesses: Accesses, indices: Iterable[Index]) -> LoopChanges:
    outer, inner = _ordered(nest, accesses)
    chains = _chains(dict.fromkeys((outer, *inner.values())), [*indices], nest.analysis)
    sizes = {s: nest.analysis.product(map(extent, chain)) for s, chain in chains.items()}
    names = _names(outer, inner.values(), chains)
    new = {s: nest.analysis.loop(name, sizes[s]) for s, name in names.items()}
    everywhere = (*nest.outer, *(s for piece in nest.pieces for s in piece.inner))
    # Unit loops become 0. Of loops that merge the innermost becomes the new loop, the others 0.
    renaming: dict[Symbol, Index] = dict.fromkeys(everywhere, integer(0))
    for first, chain in chains.items():
        renaming[chain[-1]] = new[first].index
    new_outer = tuple(new[s] for s in outer if s in new)
    new_inner = {old: tuple(new[s] for s in loops if s in new) for old, loops in inner.items()}
    same = new_outer == nest.outer and all(old == loops for old, loops in new_inner.items())
    same = same and all(old.index == index for old, index in renaming.items())
    return LoopChanges(new_outer, new_inner, renaming, same)


# Order --------------------------------------------------------------------------------------------


def _ordered(nest: Nest, accesses: Accesses) -> tuple[Loops, dict[Loops, Loops]]:
    """Loops by descending stride in the accesses that move most bytes, unit loops left out: outer,
    and inner ones by old.
    """
    outer = _without_units(nest.outer)
    lists = {piece.inner: _without_units(piece.inner) for piece in nest.pieces}
    if len(outer) < 2 and all(len(loops) < 2 for loops in lists.values()):
        return outer, lists
    if not any(piece.kind in ("scatter", "gather") for piece in nest.pieces):
        outer = _best_order(outer, accesses, nest.analysis)
    # Pieces with the same inner loops walk them in the same order, so that they can share a stage.
    fixed = {p.inner for p in nest.pieces if p.kind in ORDERED_KINDS}
    orders = {frozenset(lists[old]): lists[old] for old in fixed}
    for loops in lists.values():
        if frozenset(loops) not in orders:
            orders[frozenset(loops)] = _best_order(loops, accesses, nest.analysis)
    for old, loops in lists.items():
        lists[old] = loops if old in fixed else orders[frozenset(loops)]
    return outer, lists


def _without_units(loops: Loops) -> Loops:
    return tuple(symbol for symbol in loops if symbol.extent != 1)


def _weighted_accesses(nest: Nest) -> Accesses:
    """Every access to memory with the bytes behind it; writes first, for they win where the bytes
    are equal.
    """
    analysis = nest.analysis
    weights: dict[tuple[str, Index], int] = {}
    for piece in nest.pieces:
        for write in piece.writes:
            weights[write.buffer, write.index] = analysis.bytes(write.buffer)
    for piece in nest.pieces:
        for load in piece.loads(analysis):
            weights.setdefault((load.buffer, load.index), analysis.bytes(load.buffer))
    return tuple((index, weight) for (_, index), weight in weights.items())


def _best_order(loops: Loops, accesses: Accesses, analysis: Analysis) -> Loops:
    """The loop order that makes the most bytes contiguous, among the orders that the single
    accesses prefer.
    """
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
    """The absolute stride by hints; 0 where the loop does not occur; a large one where it is
    irregular.
    """
    stride = analysis.stride(index, symbol)
    if stride is None or any(isinstance(s, LoopSymbol) for s in stride.free()):
        return 1 << 40
    return abs(analysis.hint(stride))


# Merge --------------------------------------------------------------------------------------------


def _chains(lists: Mapping[Loops, None], indices: Sequence[Index], analysis: Analysis) -> Chains:
    """Every loop, with those inside it that it merges with: neighbours that every access walks as
    one.
    """
    chains: dict[LoopSymbol, Loops] = {}
    for loops in lists:
        run: Loops = ()
        for symbol in loops:
            together = bool(run) and _always_together(run[-1], symbol, lists)
            if together and all(walks_as_one(i, run[-1], symbol, analysis) for i in indices):
                run = (*run, symbol)
            else:
                run = (symbol,)
            chains[run[0]] = run
    return chains


def _always_together(before: LoopSymbol, after: LoopSymbol, lists: Mapping[Loops, None]) -> bool:
    """Whether every list of loops that has one of the two has both, side by side."""
    for symbols in lists:
        if before in symbols or after in symbols:
            place = symbols.index(before) if before in symbols else len(symbols)
            if symbols[place + 1 : place + 2] != (after,):
                return False
    return True


def walks_as_one(index: Index, before: LoopSymbol, after: LoopSymbol, analysis: Analysis) -> bool:
    """Whether an index moves along two loops, one inside the other, as along one."""
    outer, inner = analysis.stride(index, before), analysis.stride(index, after)
    if outer is None or inner is None:
        return False
    return outer == analysis.product((after.extent, inner))


# Names --------------------------------------------------------------------------------------------


def _names(outer: Loops, inner: Iterable[Loops], chains: Chains) -> dict[LoopSymbol, str]:
    """A name for each chain: i0, i1, … or the lowest r0, r1, … that is free beside the loops it
    stands with.
    """
    heads = [symbol for symbol in outer if symbol in chains]
    names = {symbol: f"i{k}" for k, symbol in enumerate(heads)}
    lists = dict.fromkeys(tuple(s for s in loops if s in chains) for loops in inner)
    for symbol in dict.fromkeys(symbol for symbols in lists for symbol in symbols):
        used = {names.get(s) for symbols in lists if symbol in symbols for s in symbols}
        names[symbol] = next(n for k in count() if (n := f"r{k}") not in used)
    return names
