"""Cuts a joint graph into a forward and a backward graph.

    x, tangent0: inputs              x: input                  sin, tangent0: inputs
    sin = aten.sin(x)                sin = aten.sin(x)         cos = aten.cos(sin)
    sin_1 = aten.sin(sin)      ->    sin_1 = aten.sin(sin)     mul = aten.mul(tangent0, cos)
    cos = aten.cos(sin)              return (sin_1, sin)       return (mul,)
    mul = aten.mul(tangent0, cos)
    return (sin_1, mul)

A partition function chooses the values to save, `sin` above; `split` does the rest. What backward
needs and is not saved is computed again from what is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.aot.dead_code import dependents, is_wanted
from fusewright.aot.functionalize import memory_owner, shown_memory, view_source
from fusewright.aot.graph import AtenGraph, constants_of
from fusewright.aot.joint import JointGraph
from fusewright.aot.specs import FromGraph, FromInput
from fusewright.ir.index import Index, Symbol
from fusewright.opaque import is_number
from fusewright.operators import OperatorKind, facts, is_pointwise
from fusewright.records import record
from fusewright.symbolic.nodes import index_of
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten


@record(kw_only=True, slots=False)
class Partition:
    """A forward and a backward graph, and what goes from the one to the other."""

    forward: AtenGraph
    """Returns the program's outputs, then what is saved and is neither an input nor one of those.
    """

    backward: AtenGraph
    """Takes the saved values, then the tangents; returns the gradients."""

    saved: tuple[FromInput | FromGraph, ...]
    """Where the forward call finds each saved value."""

    saved_bytes: int
    """Bytes of the saved tensors that are no inputs of the program."""

    joint: JointGraph


PartitionFunction = Callable[[JointGraph], Partition]


def default_partition(joint: JointGraph) -> Partition:
    """Save every value of the forward half that the backward half reads; nothing is computed twice
    but views.
    """
    halves = find_halves(joint)
    saved = [
        value
        for node in halves.backward
        for value in node.all_input_nodes
        if value in halves.forward
    ]
    returned = [node for node in joint.outputs[joint.output_count :] if node in halves.forward]
    return split(joint, halves, [saved_in_place_of(node) for node in (*saved, *returned)])


@record(slots=False)
class Halves:
    """The nodes of a joint graph, by when they have to be computed; ordered as in the graph."""

    forward: dict[fx.Node, None]
    """The nodes that the program's outputs need, and those with effects."""

    backward: dict[fx.Node, None]
    """The other nodes that the gradients need, and those with effects there."""

    early: dict[fx.Node, None]
    """The part of `backward` that depends on no tangent: it may be computed in forward, and saved.
    """

    late_effects: tuple[fx.Node, ...]
    """The nodes with effects that depend on a tangent: a check in the formula of a gradient, say.
    """


def find_halves(joint: JointGraph) -> Halves:
    """Tell the forward from the backward half of `joint`."""
    after_tangents = dependents(joint.graph, joint.tangent_nodes)
    effects = [node for node in joint.graph.nodes if is_wanted(node)]
    late_effects = [node for node in effects if node in after_tangents]
    effects = [node for node in effects if node not in after_tangents]
    forward = ancestors((*joint.outputs[: joint.output_count], *effects))
    forward.update((node, None) for node in joint.graph.find_nodes(op="placeholder"))
    forward = {node: None for node in forward if node not in after_tangents}
    for node in list(forward):
        forward.update((user, None) for user in node.users if user.target is operator.getitem)
    needed = ancestors((*joint.outputs[joint.output_count :], *late_effects))
    backward = {node: None for node in joint.graph.nodes if node in needed and node not in forward}
    for node in joint.tangent_nodes:
        backward.pop(node, None)
    return Halves(
        forward={node: None for node in joint.graph.nodes if node in forward},
        backward=backward,
        early={node: None for node in backward if node not in after_tangents},
        late_effects=tuple(late_effects),
    )


def ancestors(nodes: Iterable[Any], others: Iterable[fx.Node] = ()) -> dict[fx.Node, None]:
    """`nodes` and all that they are computed from, as far as `known` values."""
    reached: dict[fx.Node, None] = {}
    boundary = set(others)
    stack = [node for node in nodes if isinstance(node, fx.Node)]
    while stack:
        node = stack.pop()
        if node not in reached:
            reached[node] = None
            if node not in boundary:
                stack.extend(node.all_input_nodes)
    return reached


def saved_in_place_of(node: fx.Node) -> fx.Node:
    """The node to save where `node` is needed: for a view of no fewer bytes, or of an input, what
    it is a view of.
    """
    while (source := view_source(node)) is not None:
        held = memory_owner(node).op in ("placeholder", "get_attr")
        if not held and byte_count(node.meta["val"]) < byte_count(source.meta["val"]):
            break
        node = source
    return node


def sought_values(halves: Halves) -> set[fx.Node]:
    """The forward half's floats from which backward computes operands whose equal elements it looks
    for, as gradients of extremes do. What is computed again in another kernel may be rounded
    otherwise, and equal none.
    """
    seeking = [node for node in halves.backward if facts(node.target).seeks_equals]
    stack = [operand for node in seeking for operand in node.all_input_nodes]
    nodes: set[fx.Node] = set()
    while stack:
        node = saved_in_place_of(stack.pop())
        value = node.meta.get("val")
        if node in halves.early:
            stack.extend(node.all_input_nodes)
        elif isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            nodes.add(node)
    return nodes


def counted_values(halves: Halves) -> set[fx.Node]:
    """The forward half's values of which elements are counted or chosen by truth, so that a size
    depends on them. What is computed again in another kernel may be rounded otherwise, and choose
    more elements or fewer, than the gradient has.
    """
    counted: set[fx.Node] = set()
    for node in halves.forward:
        if not isinstance(node.target, OpOverload) or not facts(node.target).sizes_from_values:
            continue
        read = node.all_input_nodes
        chooses = node.target in (aten.masked_select.default, aten.index.Tensor)
        counting = filter(_is_mask, read) if chooses else read[:1]
        counted.update(map(saved_in_place_of, counting))
    return counted & halves.forward.keys()


def _is_mask(node: fx.Node) -> bool:
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8)


def is_fused(node: fx.Node) -> bool:
    """Whether a kernel that computes `node` may compute what it reads on the way."""
    target: Any = node.target
    if not isinstance(target, OpOverload):
        return not hasattr(target, "graphs")
    is_reduction = facts(target).kind is OperatorKind.REDUCTION
    return is_reduction or is_pointwise(target) or torch_compat.is_view_operator(target)


ROUGH_SIZE = 64


def byte_count(value: Any) -> int:
    """Bytes of a fake; of a tensor of symbolic sizes, for the sizes seen when compiling, or for
    `ROUGH_SIZE` where they depend on data.
    """
    if not isinstance(value, torch.Tensor):
        return 0
    hints = (size.node.hint if isinstance(size, torch.SymInt) else size for size in value.shape)
    sizes = (ROUGH_SIZE if hint is None else hint for hint in hints)
    return math.prod(sizes) * value.itemsize


# -- making the two graphs ------------------------------------------------------------------------


def split(joint: JointGraph, halves: Halves, saved: Iterable[fx.Node]) -> Partition:
    """The partition of `joint` that saves `saved`, nodes that depend on no tangent, and computes
    again from those what else backward needs.
    """
    gradients = joint.outputs[joint.output_count :]
    wanted = set(saved)
    reached = ancestors((*gradients, *halves.late_effects), wanted)
    boundary = [
        node
        for node in (*halves.forward, *halves.early)
        if node in reached and (node in wanted or node.op == "placeholder") and not _is_held(node)
    ]
    inputs = joint.graph.find_nodes(op="placeholder")
    boundary += untold_numbers(inputs, [*boundary, *joint.tangent_nodes])
    boundary.sort(key=lambda node: not is_number(node.meta["val"]))  # numbers first
    forward, places = _forward_graph(joint, halves, boundary)
    nodes = _late(joint, halves, reached, set(boundary))
    backward = subgraph(nodes, [*boundary, *joint.tangent_nodes], gradients)
    for node, place in zip(backward.find_nodes(op="placeholder"), places, strict=False):
        is_returned = isinstance(place, FromInput) or place.position < joint.output_count
        node.meta["is_released"] = not is_returned
    return Partition(
        forward=forward,
        backward=AtenGraph(graph=backward, constants=constants_of(backward, joint.constants)),
        saved=tuple(places),
        saved_bytes=sum(
            byte_count(node.meta["val"])
            for node, place in zip(boundary, places, strict=True)
            if isinstance(place, FromGraph)
        ),
        joint=joint,
    )


def untold_numbers(nodes: Iterable[fx.Node], taken: Iterable[fx.Node]) -> list[fx.Node]:
    """Those of `nodes` that are numbers on which sizes of what a graph takes depend by quotients
    alone, from which they cannot be computed: `s0` of `f32[s0 // 2]`.
    """
    extents = [index_of(number) for node in taken for number in _numbers_of(node.meta["val"])]
    told = {symbol for index in extents for symbol in _summed(index)}
    untold = {symbol for index in extents for symbol in index.free()} - told
    return [
        node
        for node in nodes
        if isinstance(node.meta["val"], torch.SymInt)
        and not untold.isdisjoint(_summed(index_of(node.meta["val"])))
    ]


def _numbers_of(value: Any) -> list[torch.SymInt]:
    """A number, or the sizes and strides of a tensor, where they are symbolic."""
    is_tensor = isinstance(value, torch.Tensor)
    numbers = (*value.shape, *value.stride()) if is_tensor else (value,)
    return [number for number in numbers if isinstance(number, torch.SymInt)]


def _summed(index: Index) -> set[Symbol]:
    """The symbols in an expression's sum that stand in products, not in quotients alone."""
    return {atom for _, atoms in index.terms for atom in atoms if isinstance(atom, Symbol)}


def _late(
    joint: JointGraph, halves: Halves, reached: dict[fx.Node, None], saved: set[fx.Node]
) -> list[fx.Node]:
    """The nodes `reached` in an order in which what is computed again is so where it is first read,
    and does not take up memory before.
    """
    order: dict[fx.Node, None] = {}
    positions = {node: index for index, node in enumerate(joint.graph.nodes)}
    readers = [node for node in halves.backward if node in reached]
    returned = [node for node in joint.outputs[joint.output_count :] if isinstance(node, fx.Node)]
    for reader in (*readers, *returned):
        missing: dict[fx.Node, None] = {}
        stack = [reader]
        while stack:
            node = stack.pop()
            if node in reached and node not in order and node not in missing:
                missing[node] = None
                stack.extend(() if node in saved else node.all_input_nodes)
        order.update((node, None) for node in sorted(missing, key=positions.__getitem__))
    return list(order)


def _is_held(node: fx.Node) -> bool:
    """Constants are there in both graphs."""
    return node.op == "get_attr"


def _forward_graph(
    joint: JointGraph, halves: Halves, boundary: Sequence[fx.Node]
) -> tuple[AtenGraph, list[FromInput | FromGraph]]:
    """The forward graph, and where in its call each node of `boundary` is found."""
    tangents = set(joint.tangent_nodes)
    inputs = [node for node in joint.graph.find_nodes(op="placeholder") if node not in tangents]
    outputs = list(joint.outputs[: joint.output_count])
    owners = {shown_memory(node): node for node in outputs if isinstance(node, fx.Node)}
    written = joint.written_inputs
    copied: list[fx.Node] = []
    places: list[FromInput | FromGraph] = []
    input_places = {node: index for index, node in enumerate(inputs) if node not in written}
    output_places = {node: index for index, node in reversed([*enumerate(outputs)])}
    for node in boundary:
        if node in input_places:
            places.append(FromInput(input_places[node]))
        elif node in output_places:
            places.append(FromGraph(output_places[node]))
        else:
            places.append(FromGraph(len(outputs)))
            outputs.append(node)
            owner = shown_memory(node)
            if owner is not node or owner in owners or node in written:
                copied.append(node)
    needed = ancestors((*outputs, *(node for node in halves.forward if is_wanted(node))))
    nodes = [node for node in joint.graph.nodes if node in needed]
    graph = subgraph(nodes, inputs, outputs, frozenset(copied))
    forward = AtenGraph(
        graph=graph,
        constants=constants_of(graph, joint.constants),
        mutated_inputs=joint.mutated_inputs,
        unnoticed_inputs=joint.unnoticed_inputs,
        bases=joint.bases,
        geometry_changes=joint.geometry_changes,
        inputs_with_bits=joint.inputs_with_bits,
        results=joint.results,
        structure=joint.structure,
    )
    return forward, places


def subgraph(
    nodes: Sequence[fx.Node],
    inputs: Sequence[fx.Node],
    outputs: Sequence[Any],
    copied: frozenset[fx.Node] = frozenset(),
) -> fx.Graph:
    """A graph that computes `outputs` from `inputs` by copies of `nodes`; of the outputs `copied`
    it returns clones.
    """
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        values[node] = graph.create_node("placeholder", node.name, name=node.name)
        values[node].meta = dict(node.meta)
    for node in nodes:
        if node not in values:
            values[node] = graph.node_copy(node, values.__getitem__)
    returned = []
    for node in outputs:
        value = values[node] if isinstance(node, fx.Node) else node
        if node in copied:
            value = graph.call_function(aten.clone.default, (value,))
            value.meta = dict(node.meta)
        returned.append(value)
    graph.output(tuple(returned))
    return graph
