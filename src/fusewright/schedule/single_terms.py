"""Sums of which all terms but one are alike need no loop.

Before, the sum over classes of a cross entropy's gradient:
```
nest [i0<32]
  sum   s[i0] over [r0<1000]:   where(r0 == labels[i0], g[i0], 0.0)
```
After:
```
nest [i0<32]
  store s[i0]:   where(labels[i0] >= 0 & labels[i0] < 1000, g[i0], 0.0)
```
The terms are the same wherever the loop is not at the place that they compare it with; as many as
there are of these are one product, which rounds once.
"""

from __future__ import annotations

from fusewright.ir.index import LoopSymbol, Symbol
from fusewright.ir.value import Apply, IndexValue, Value
from fusewright.records import replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.nest import Nest


def without_single_terms(nest: Nest) -> Nest:
    """A nest of one piece, which stores its sum where the terms are alike but for one."""
    (piece,) = nest.pieces
    if piece.kind != "sum" or len(piece.inner) != 1:
        return nest
    total = _total(piece.value, *piece.inner, nest.analysis)
    if total is None:
        return nest
    result = nest.analysis.buffers[piece.writes[0].buffer].layout.dtype
    total = nest.analysis.expressions.cast(total, result)
    return replace(nest, pieces=(replace(piece, kind="store", inner=(), value=total),))


def _total(term: Value, loop: LoopSymbol, analysis: Analysis) -> Value | None:
    """The sum of a term over a loop; None where it has to be added up."""
    comparison = _comparison(term, loop, analysis)
    if comparison is None:
        return None
    make = analysis.expressions

    def decided(*, outcome: bool) -> Value:
        known = {id(comparison): outcome}
        return make.rewrite(term, {}, lambda load: None, lambda asked: known.get(id(asked)))

    there, elsewhere = decided(outcome=True), decided(outcome=False)
    if any(_depends(value, loop, analysis) for value in (there, elsewhere)):
        return None
    place = next(value for value in comparison.arguments if not _is_loop(value, loop))
    count = make.index(loop.extent, place.dtype)
    zero = make.constant(0, place.dtype)
    is_met = make.apply(
        "bitwise_and", make.apply("ge", place, zero), make.apply("lt", place, count)
    )
    nothing = make.constant(0, term.dtype)
    if elsewhere is nothing:
        return make.apply("where", is_met, make.apply("add", there, nothing), nothing)  # No -0.0.
    if not loop.extent.is_constant or int(loop.extent) < 2:
        return None  # A product with 0 may be no number.
    number = int(loop.extent)
    others, all_alike = (
        make.apply("mul", elsewhere, make.constant(factor, term.dtype))
        for factor in (number - 1, number)
    )
    return make.apply("where", is_met, make.apply("add", there, others), all_alike)


def _comparison(term: Value, loop: LoopSymbol, analysis: Analysis) -> Apply | None:
    """The one comparison of a loop with a place that does not depend on it; None: there is none, or
    several are.
    """
    found = [
        node
        for node in analysis.nodes(term)
        if isinstance(node, Apply) and node.operation == "eq" and _is_of_loop(node, loop, analysis)
    ]
    return found[0] if len(found) == 1 else None


def _is_of_loop(comparison: Apply, loop: LoopSymbol, analysis: Analysis) -> bool:
    first, second = comparison.arguments
    return (_is_loop(first, loop) and not _depends(second, loop, analysis)) or (
        _is_loop(second, loop) and not _depends(first, loop, analysis)
    )


def _is_loop(value: Value, loop: LoopSymbol) -> bool:
    return isinstance(value, IndexValue) and value.index == loop.index


def _depends(value: Value, loop: Symbol, analysis: Analysis) -> bool:
    """Whether a value varies along a loop."""
    return any(loop in index.free() for index in analysis.indices(value))
