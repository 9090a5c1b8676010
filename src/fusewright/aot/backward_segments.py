"""A backward graph in segments, which run one after the other: each ends where a bucket of
gradients is full, so that these can be reduced while the next segment computes.

    backward(a, b, tangent0)                    segment 0(b, tangent0)
        mul = aten.mul(tangent0, b)                 mul = aten.mul(tangent0, b)
        sum = aten.sum(mul)                         sum = aten.sum(mul)
        mul_1 = aten.mul(mul, a)         ->         return (sum, mul)
        return (sum, mul_1)                     segment 1(a, mul)
                                                    mul_1 = aten.mul(mul, a)
                                                    return (mul_1,)

A node belongs to the first bucket that is full when it is computed: the graph stands in the order
in which the engine computes gradients. What crosses from a segment to later ones is returned, and
handed on; views and numbers are computed again from that.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright.aot.backward_parts import BackwardPart
from fusewright.aot.buckets import Gradient, Limits, full_buckets
from fusewright.aot.dead_code import is_wanted
from fusewright.aot.functionalize import view_source
from fusewright.aot.graph import AtenGraph, constants_of
from fusewright.aot.partition import byte_count, subgraph
from fusewright.aot.specs import FromGraph, FromInput
from fusewright.aot.symbols import solution, symbols_as_numbers
from fusewright.opaque import is_number
from fusewright.records import record
from fusewright.symbolic.nodes import free_symbols, index_of

aten = torch.ops.aten

_SEGMENT: Final = "segment"
"""In the `meta` of nodes of a backward graph: the number of their segment."""


@record
class Segment:
    """A part of a backward graph that runs by itself.

    It is given values, the first one the tangents, and gives some of these and of its own results
    to the next one. A place below counts the graph's outputs, and behind them the given values.
    """

    graph: AtenGraph
    """Takes the saved values `saved`, then the given values `reads`, then the sizes."""

    saved: tuple[int, ...]
    """Numbers, among the saved values of the whole graph, of those that it may read."""

    reads: tuple[int, ...]
    """Numbers of the given values that the graph takes."""

    gradients: dict[int, int]
    """The place of each output of the whole graph that is final here, by its number there."""

    passes: tuple[int, ...]
    """The places of what the next segment is given."""


def segment_ends(part: BackwardPart, counted: Sequence[int], limits: Limits) -> list[int]:
    """When segments end, by the clock of `_times`: all but the last one. Gradients of `counted`,
    numbers in `part.inputs`, are put in buckets.
    """
    times = _times(part.graph)
    outputs = part.graph.outputs
    finals = []
    for number in counted:
        place = part.gradients[number]
        node = outputs[place.position] if isinstance(place, FromGraph) else None
        if isinstance(place, FromInput):
            node = part.tangent_nodes[place.index]
        if isinstance(node, fx.Node):
            value = node.meta["val"]
            gradient = Gradient((value.dtype, value.device), byte_count(value))
            finals.append((times[node], gradient))
    finals.sort(key=lambda final: final[0])
    full = full_buckets((gradient for _, gradient in finals), limits)
    return sorted({finals[number][0] for number in full if finals[number][0] < finals[-1][0]})


def mark_segments(graph: AtenGraph, ends: Sequence[int]) -> None:
    """Note in the nodes of `graph` to which segment they belong. Copies of nodes keep it."""
    for node, time in _times(graph).items():
        node.meta[_SEGMENT] = bisect.bisect_left(ends, time)


def _times(graph: AtenGraph) -> dict[fx.Node, int]:
    """When each node is computed: its position in the graph; but results taken from a tuple, and
    what only changes the layout of a gradient, when that is there from which it is made. Tracing
    puts these last steps to gradients behind everything else.
    """
    positions = {node: position for position, node in enumerate(graph.graph.nodes)}
    last_steps: set[fx.Node] = set()
    for node in reversed(positions):
        is_last = all(user.op == "output" or user in last_steps for user in node.users)
        if is_last and (view_source(node) is not None or node.target in _LAYOUT_CHANGES):
            last_steps.add(node)
    times: dict[fx.Node, int] = {}
    for node, position in positions.items():
        follows = node in last_steps or node.target is operator.getitem
        read = node.all_input_nodes if follows else ()
        times[node] = max((times[argument] for argument in read), default=position)
    return times


_LAYOUT_CHANGES: Final = (aten.clone.default, aten._unsafe_view.default)


def output_segments(graph: AtenGraph) -> list[int]:
    """By output of a marked graph: the segment in which it is final."""
    return [output.meta[_SEGMENT] if isinstance(output, fx.Node) else 0 for output in graph.outputs]


@record
class SizeSource:
    """Where a number is found that tells what a symbol in sizes is."""

    placeholder: int
    """The number of an input of the whole graph."""

    dimension: int | None
    """The dimension of that tensor; None where the input is the number itself."""

    value: torch.SymInt

    def read(self, value: Any) -> Any:
        """The number, from the input."""
        return value if self.dimension is None else value.shape[self.dimension]


def size_sources(graph: AtenGraph) -> list[SizeSource]:
    """One for each symbol in the sizes of a backward graph. Segments are given them all: not each
    takes a tensor of such a size.
    """
    values = [node.meta["val"] for node in graph.graph.nodes if "val" in node.meta]
    sources = (
        _source_of(graph, number)
        for number in symbols_as_numbers(values)
        if isinstance(number, torch.SymInt)
    )
    return [source for source in sources if source is not None]


def _source_of(graph: AtenGraph, number: torch.SymInt) -> SizeSource | None:
    (symbol,) = free_symbols(number)
    for place, node in enumerate(graph.placeholders):
        value = node.meta["val"]
        sizes = value.shape if isinstance(value, torch.Tensor) else [value]
        for dimension, size in enumerate(sizes):
            if isinstance(size, torch.SymInt) and solution(index_of(size), symbol) is not None:
                is_tensor = isinstance(value, torch.Tensor)
                return SizeSource(place, dimension if is_tensor else None, size)
    return None


def segments(
    graph: AtenGraph,
    saved_count: int,
    ends_in: Sequence[int],
    count: int,
    sizes: Sequence[SizeSource],
) -> list[Segment]:
    """The `count` segments of a marked backward graph, or of what is left of one where tangents are
    absent. `saved_count` of its inputs are saved values, the others tangents. `ends_in`: by output,
    the segment that is to return it. `sizes` are inputs of each segment.
    """
    return _Cut(graph, saved_count, ends_in, count, sizes).segments()


class _Cut:
    """Cuts one graph."""

    def __init__(
        self,
        graph: AtenGraph,
        saved_count: int,
        ends_in: Sequence[int],
        count: int,
        sizes: Sequence[SizeSource],
    ) -> None:
        self._graph = graph
        self._sizes = [fx.Graph().placeholder(f"size{number}") for number in range(len(sizes))]
        for node, size in zip(self._sizes, sizes, strict=True):
            node.meta["val"] = size.value
        self._count = count
        placeholders = graph.placeholders
        self._saved = {node: number for number, node in enumerate(placeholders[:saved_count])}
        self._given = placeholders[saved_count:]
        self._own: list[dict[fx.Node, None]] = [{} for _ in range(count)]
        """By segment: the nodes that it computes."""

        self._read: list[dict[fx.Node, None]] = [{} for _ in range(count)]
        """By segment: what it takes, of the saved values and of other segments' results."""

        self._returned: list[dict[fx.Node, list[int]]] = [{} for _ in range(count)]
        """By segment: the nodes of the gradients that it returns, with their numbers."""

        for number, output in enumerate(graph.outputs):
            self._returned[ends_in[number]].setdefault(output, []).append(number)

    def segments(self) -> list[Segment]:
        """The segments, in order."""
        needed = self._needed()
        for node in self._graph.graph.nodes:
            if node in needed and node.op not in ("placeholder", "output"):
                self._take(node, node.meta[_SEGMENT])
        for number, returned in enumerate(self._returned):
            for output in returned:
                if isinstance(output, fx.Node) and output not in self._own[number]:
                    self._read[number][output] = None
        handed = self._given
        segments = []
        for number in range(self._count):
            later = {node for read in self._read[number + 1 :] for node in read}
            segment, handed = self._segment(number, handed, later)
            segments.append(segment)
        return segments

    def _needed(self) -> set[fx.Node]:
        """The nodes that lead to a gradient, or have an effect."""
        needed: set[fx.Node] = set()
        stack = [output for output in self._graph.outputs if isinstance(output, fx.Node)]
        stack += [node for node in self._graph.graph.nodes if is_wanted(node)]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack += node.all_input_nodes
        return needed

    def _take(self, node: fx.Node, number: int) -> None:
        """Have segment `number` compute `node`: its inputs first, where these are computed anew."""
        if node in self._own[number]:
            return
        for source in node.all_input_nodes:
            if source in self._own[number]:
                continue
            if source.op != "placeholder" and _is_computed_again(source):
                self._take(source, number)
            else:
                self._read[number][source] = None
        self._own[number][node] = None

    def _segment(
        self, number: int, handed: list[fx.Node], later: set[fx.Node]
    ) -> tuple[Segment, list[fx.Node]]:
        """A segment, and what it hands to the next one."""
        own, read, returned = self._own[number], self._read[number], self._returned[number]
        outputs = [node for node in returned if node not in read or node in self._saved]
        crossing = [node for node in own if node in later and node not in outputs]
        saved = [node for node in self._saved if node in read]
        reads = [place for place, node in enumerate(handed) if node in read]
        returns = [*outputs, *crossing]
        inputs = [*saved, *(handed[place] for place in reads), *self._sizes]
        graph = subgraph(list(own), inputs, returns, frozenset(self._saved))
        places = {node: place for place, node in reversed([*enumerate([*returns, *handed])])}
        passed = [node for node in places if node in later and node not in self._saved]
        segment = Segment(
            graph=AtenGraph(graph=graph, constants=constants_of(graph, self._graph.constants)),
            saved=tuple(self._saved[node] for node in saved),
            reads=tuple(reads),
            gradients={
                position: places[node]
                for node, positions in returned.items()
                for position in positions
            },
            passes=tuple(places[node] for node in passed),
        )
        return segment, passed


def _is_computed_again(node: fx.Node) -> bool:
    """Whether a value is computed by each segment that reads it, at next to no cost."""
    if node.op == "get_attr" or is_number(node.meta.get("val")):
        return True
    return view_source(node) is not None
