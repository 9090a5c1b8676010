"""Batching: stores over equal loops that have nothing to do with each other share one kernel, and
so one launch.

Before:                                        After:
```
nest [i0<24, i1<8192]  store a[…]:  …          nest [i0<24, i1<8192]
nest [i0<24, i1<8192]  store b[…]:  …            store a[…]:  …
                                                 store b[…]:  …
```
Runs after fusion, on simplified nests, whose loops are equal when they are the same symbols. Only
steps that lie near each other are batched, so that no buffer has to live much longer. Where
launches that do the same over any loops become one, such as an optimiser's on a GPU, they are left
alone. There small reductions over equal loops share a kernel, too: the totals of statistics that
were gathered in chunks take less time than a launch. They may lie far apart where what they read
can wait: as long as no more memory is alive at any time than at the peak (`Room`). So this comes
behind the passes that gather several such statistics in one step.
"""

from __future__ import annotations

from fusewright.ir.index import LoopSymbol
from fusewright.ir.ops import REDUCTION_KINDS
from fusewright.ir.products import DOT
from fusewright.schedule.fusion import Graph, join, why_not_join
from fusewright.schedule.live_memory import Room
from fusewright.schedule.nest import Nest

DISTANCE = 8
"""Statements of the program that two batched nests may lie apart, whatever waits meanwhile."""

SMALL = 6 << 20
"""Bytes: reductions that move no more take hardly longer than a launch, some 2 us on an H100."""

Loops = tuple[LoopSymbol, ...]

_GATHERS = frozenset({"store", *REDUCTION_KINDS} - {DOT})
"""Kinds of pieces of small reductions."""


def batch(graph: Graph) -> None:
    """Join each nest of stores, or of small reductions, with the nearest one before it, on its
    device, that has the same loops. Changes `graph` in place.
    """
    numbers = [number for number in range(len(graph.steps)) if _may_join(graph.nest(number))]
    sums = {number for number in numbers if not is_plain(_nest(graph, number))}
    room = Room.of(graph) if sums else None
    latest: dict[tuple[str, Loops, frozenset[Loops]], tuple[int, int]] = {}
    """The step of a nest, and that from which on what it reads may not have got room yet."""
    for number in numbers:
        nest = _nest(graph, number)
        inner = frozenset(piece.inner for piece in nest.pieces if piece.inner)
        alike = nest.device, nest.outer, inner
        first, since = latest.get(alike, (number, number))
        latest[alike] = number, number
        if first == number or why_not_batch(graph, first, number) is not None:
            continue
        left = _nest(graph, first)
        if room is not None and number in sums and number - since > DISTANCE:
            if not room.take(left.loaded, since, number):
                continue
            since = number
        join(graph, first, number, nest.outer, (*left.pieces, *nest.pieces))
        latest[alike] = first, since


def _nest(graph: Graph, number: int) -> Nest:
    nest = graph.nest(number)
    assert nest is not None
    return nest


def _may_join(nest: Nest | None) -> bool:
    return nest is not None and (is_plain(nest) or _is_small_reduction(nest))


def is_plain(nest: Nest) -> bool:
    """Whether it stores at each point of its outer loops, and no more."""
    return nest.is_pointwise and not any(piece.inner for piece in nest.pieces)


def _is_small_reduction(nest: Nest) -> bool:
    """Whether it gathers so little that a launch takes longer, where launches are counted."""
    if not nest.analysis.limits_of(nest.device).batches_launches:
        return False
    kinds = {piece.kind for piece in nest.pieces}
    if ("store" in kinds and len(kinds) == 1) or not kinds <= _GATHERS:
        return False
    return sum(map(nest.analysis.bytes, {*nest.loaded, *nest.written})) <= SMALL


def why_not_batch(graph: Graph, first: int, second: int) -> str | None:
    """The reason why two nests over the same loops keep a kernel each, or None."""
    left, right = graph.nest(first), graph.nest(second)
    if not isinstance(left, Nest) or not isinstance(right, Nest):
        return "a library call or a copy has no loops"
    if is_plain(left) and _position(right) - _position(left) > DISTANCE:
        return "they lie far apart"
    dependencies = graph.dependencies
    if dependencies.must_precede(first, second) or dependencies.must_precede(second, first):
        return "one needs the other's result"
    limits = graph.analysis.limits_of(left.device)
    if len({*left.loaded, *left.written, *right.loaded, *right.written}) > limits.most_buffers:
        return "a kernel cannot be given so many buffers"
    if limits.batches_launches and is_plain(left) and _do_the_same(left, right):
        return "their launches become one, with those over other loops"
    return why_not_join(graph, first, second)


def _do_the_same(left: Nest, right: Nest) -> bool:
    """Whether two nests over one loop compute, as far as can be seen at once, the same of other
    tensors.
    """
    sizes = [
        [len(nest.analysis.nodes(piece.value)) for piece in nest.pieces] for nest in (left, right)
    ]
    return len(left.outer) == 1 and sizes[0] == sizes[1]


def _position(nest: Nest) -> int:
    return nest.pieces[-1].position
