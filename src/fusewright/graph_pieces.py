"""A captured graph in pieces, which are compiled apart: each begins where, in backward, a bucket of
gradients is full, so that `DistributedDataParallel` reduces it while the pieces before compute
their gradients. The other way, which leaves the forward whole, is `aot.segmented_history`.

    graph(x, v, w):                    piece 0(x, v):              piece 1(h, w):
        h = linear(x, v)       ->          h = linear(x, v)            y = linear(h, w)
        y = linear(h, w)                   return (h,)                 return (y,)
        return (y,)

A gradient is final when the backward of its parameter's first use has run: walking the graph from
its end, parameters come in the order in which they are reduced. Between the first use that fills a
bucket and the one before it in the graph, the cut is made where the fewest bytes cross.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.aot.buckets import Gradient, Limits, full_buckets
from fusewright.aot.partition import byte_count
from fusewright.errors import note_partial_write
from fusewright.fake import FakeTensor
from fusewright.fake.graph_writes import may_write_inputs, storages_of, storages_written_by
from fusewright.modes import IN_GRAPHS
from fusewright.records import record
from fusewright.symbolic.nodes import SYMBOLIC
from fusewright.torch_compat.graph_modules import GraphModule


@record
class GraphPiece:
    """A part of a graph that is compiled by itself. A place below counts the inputs of the whole
    graph, and behind them what the pieces before have given.
    """

    module: fx.GraphModule
    examples: tuple[Any, ...]
    reads: tuple[int, ...]
    """By input of the piece: its place."""

    outlived: tuple[int, ...]
    """The places of what no later piece reads."""

    may_write: bool
    """Whether it may write to an input, so that a call cannot begin again."""


def pieces(module: fx.GraphModule, examples: Sequence[Any], limits: Limits) -> list[GraphPiece]:
    """The pieces of a captured graph for buckets of these sizes; none where it is one piece: it
    cannot be cut, or all gradients fit into one bucket.
    """
    nodes = [node for node in module.graph.nodes if node.op not in ("placeholder", "output")]
    if any("val" not in node.meta for node in module.graph.nodes):  # another front end's graph
        return []
    crossing = _Crossing(module.graph, nodes)
    positions = {node: position for position, node in enumerate(nodes)}
    parameters = [
        (min(positions[user] for user in node.users if user in positions), node)
        for node, example in zip(module.graph.find_nodes(op="placeholder"), examples, strict=True)
        if _is_parameter(example) and any(user in positions for user in node.users)
    ]
    parameters.sort(key=lambda use: -use[0])
    counted = [
        Gradient((node.meta["val"].dtype, node.meta["val"].device), byte_count(node.meta["val"]))
        for _, node in parameters
    ]
    cuts: list[int] = []
    for number in full_buckets(counted, limits):
        latest = parameters[number][0]
        earlier = [use for use, _ in parameters[number + 1 :] if use < latest]
        if earlier:
            choices = range(latest, earlier[0], -1)
            cuts += crossing.best(choice for choice in choices if not cuts or choice < cuts[-1])
    return _cut(module, examples, nodes, sorted(cuts)) if cuts else []


def _is_parameter(example: Any) -> bool:
    return isinstance(example, torch.Tensor) and example.requires_grad and example.is_leaf


class _Crossing:
    """The values that cross from the nodes before a position of a graph to the others."""

    def __init__(self, graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
        positions = {node: position for position, node in enumerate(nodes)}
        last_writes = {
            storage: position
            for position, node in enumerate(nodes)
            for storage in storages_written_by(node)
        }
        changes = [position for position, node in enumerate(nodes) if node.target in IN_GRAPHS]
        self._other_modes = range(changes[0] + 1, changes[-1] + 1) if changes else range(0)
        self._bytes = [0] * (len(nodes) + 1)
        self._refused = [False] * (len(nodes) + 1)
        for position, node in enumerate(nodes):
            last = max((positions.get(user, len(nodes)) for user in node.users), default=position)
            value = node.meta["val"]
            if node.op == "get_attr":
                continue
            may_cross = _may_cross(value)
            written = max((last_writes.get(key, -1) for key in storages_of(value)), default=-1)
            for place in range(position + 1, last + 1):
                self._bytes[place] += byte_count(value)
                self._refused[place] |= not may_cross or written >= place

    def best(self, choices: Any) -> list[int]:
        """The first position among `choices` where the fewest bytes cross; no position if the graph
        cannot be cut at any.
        """
        allowed = [
            choice
            for choice in choices
            if not self._refused[choice] and choice not in self._other_modes
        ]
        return [min(allowed, key=self._bytes.__getitem__)] if allowed else []


def _may_cross(value: Any) -> bool:
    """Whether a value may be an input of a piece: a number, or a tensor such as compiled graphs
    return; if nobody writes to its memory from there on.
    """
    if not isinstance(value, torch.Tensor):
        return isinstance(value, (int, float, *SYMBOLIC))
    if not isinstance(value, FakeTensor):
        return False
    begins = value.storage_offset()
    return isinstance(begins, int) and begins == 0 and not (value.is_conj() or value.is_neg())


def _cut(
    module: fx.GraphModule, examples: Sequence[Any], nodes: list[fx.Node], cuts: list[int]
) -> list[GraphPiece]:
    """The pieces that begin at the positions `cuts`, and at the beginning."""
    placeholders = list(module.graph.find_nodes(op="placeholder"))
    output = module.graph.output_node()
    example_of = dict(zip(placeholders, examples, strict=True))
    places = {node: place for place, node in enumerate(placeholders)}
    symbols = [node for node in placeholders if not isinstance(example_of[node], torch.Tensor)]
    begins, ends = [0, *cuts], [*cuts, len(nodes)]
    parts = [nodes[begin:end] for begin, end in zip(begins, ends, strict=True)]
    parts[-1].append(output)
    needs = [_inputs(part, symbols) for part in parts]
    result = []
    for number, part in enumerate(parts):
        later = {node for need in needs[number + 1 :] for node in need}
        returned = [node for node in part if node in later]
        for node in returned:
            places[node] = len(places)
            example_of[node] = _example(node.meta["val"], examples)
        graph = _subgraph(part, needs[number], returned)
        result.append(
            GraphPiece(
                module=GraphModule(module, graph),
                examples=tuple(example_of[node] for node in needs[number]),
                reads=tuple(places[node] for node in needs[number]),
                outlived=tuple(places[node] for node in needs[number] if node not in later),
                may_write=may_write_inputs(graph),
            )
        )
    return result


def _inputs(part: Sequence[fx.Node], symbols: Sequence[fx.Node]) -> list[fx.Node]:
    """All symbols, and behind them the other values that a piece reads from outside."""
    own = set(part)
    read = {source: None for node in part for source in node.all_input_nodes}
    tensors = [node for node in read if node not in own and node.op != "get_attr"]
    return [*symbols, *(node for node in tensors if node not in symbols)]


def _subgraph(
    part: Sequence[fx.Node], inputs: Sequence[fx.Node], returned: Sequence[fx.Node]
) -> fx.Graph:
    """A graph of copies of these nodes; without the last piece's output, it returns `returned`."""
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        values[node] = graph.create_node("placeholder", node.name, name=node.name)
        values[node].meta = dict(node.meta)
    for node in part:
        for source in node.all_input_nodes:
            if source not in values:  # a constant, which each piece holds
                values[source] = graph.node_copy(source, values.__getitem__)
        values[node] = graph.node_copy(node, values.__getitem__)
    if part[-1].op != "output":
        graph.output(tuple(values[node] for node in returned))
    return graph


def _example(value: Any, examples: Sequence[Any]) -> Any:
    """An input of a piece, as it will come from the piece before."""
    if not isinstance(value, torch.Tensor):
        return value
    for example in examples:
        if isinstance(example, FakeTensor):
            with example.fake_mode:
                return _with_history(value, value.shape, value.stride())
    # All sizes are numbers: a symbol that is left has turned out to stand for one.
    return _with_history(value, [*map(int, value.shape)], [*map(int, value.stride())])


def _with_history(value: torch.Tensor, size: Sequence[Any], stride: Sequence[Any]) -> torch.Tensor:
    """A new tensor of a size and with strides; of the type and device of `value`, and with a
    history if it has one.
    """
    example = torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
    if not value.requires_grad:
        return example
    with torch.enable_grad():
        return example.requires_grad_().view_as(example)


def in_order(parts: Sequence[GraphPiece], runs: Sequence[Callable[[list[Any]], Any]]) -> Any:
    """A function from the whole graph's inputs (one list, which is cleared) to its results, by the
    pieces' compiled functions.
    """

    def run(inputs: list[Any]) -> Any:
        values = list(inputs)
        inputs.clear()
        wrote = False
        results: Any = ()
        for part, piece in zip(parts, runs, strict=True):
            arguments = [values[place] for place in part.reads]
            for place in part.outlived:
                values[place] = None
            try:
                results = piece(arguments)
            except Exception as error:
                if wrote:
                    note_partial_write(error)
                raise
            wrote |= part.may_write
            values += results
        return results

    return run
