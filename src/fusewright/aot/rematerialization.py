"""Chooses what to save for backward and what to compute again there, by a minimum cut.

    forward:  mm = x @ w; gelu = gelu(mm); sin = sin(gelu)        saved: mm, sin
    backward: needs mm, gelu and sin                        ->    computed again: gelu

The joint graph's forward half becomes a flow network: each value is an edge whose capacity is what
saving it costs, and flow runs from what cannot be computed again to what backward reads. The
cheapest set of values that separates the two is a minimum cut (as in "Dynamic Tensor
Rematerialization" and its successors; the formulation is that of Chen et al. and of the torch
partitioner).

What must not be computed again depends on the level: at first whatever would cost time, then less
and less, as far as the memory budget demands. Random operators never are. Regions that the program
checkpoints (`torch.utils.checkpoint`) are computed again at any level, but for what they give.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from enum import IntEnum

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.aot.at_hand import compute_what_is_at_hand
from fusewright.aot.dead_code import has_effect
from fusewright.aot.eager_calls import EagerCall
from fusewright.aot.functionalize import view_source
from fusewright.aot.joint import JointGraph
from fusewright.aot.minimum_cut import UNLIMITED, FlowNetwork
from fusewright.aot.normals import read_normals_again
from fusewright.aot.partition import (
    Halves,
    Partition,
    byte_count,
    counted_values,
    find_halves,
    is_fused,
    saved_in_place_of,
    sought_values,
    split,
)
from fusewright.aot.specs import FromGraph, FromInput, Leaf
from fusewright.operators import OperatorKind, facts, is_pointwise
from fusewright.torch_compat import OpOverload


class Cost(IntEnum):
    """The cost of computing a value again, in steps of what a smaller budget allows."""

    FREE = 0
    """Nothing: backward's own kernels compute it on the way."""

    MEMORY = 1
    """The value has to be written to memory, for a library call that reads it."""

    REDUCTION = 2
    """The operator is a reduction, or costs as much as the memory that it touches."""

    LIBRARY = 3
    """The operator is a matrix product, a convolution or the like."""

    FORBIDDEN = 4
    """The operator would give another value the second time."""


def _draws(graph: fx.Graph) -> bool:
    """Whether a graph draws random numbers, or has another effect."""
    for node in graph.nodes:
        if has_effect(node):
            return True
        if any(_draws(subgraph.graph) for subgraph in getattr(node.target, "graphs", ())):
            return True
    return False


def min_cut_rematerialization_partition(joint: JointGraph, memory_budget: float = 1.0) -> Partition:
    """Save as few bytes as possible without computing again what costs time.

    `memory_budget`: between 0 and 1, the share of the bytes saved so that may be saved at most;
    below 1, the first layers compute again what costs time too, as many as it takes. 0 saves as
    little as possible.
    """
    if not 0 <= memory_budget <= 1:
        raise ValueError(f"memory_budget is a share between 0 and 1, not {memory_budget}")
    halves = find_halves(joint)
    if read_normals_again(joint, halves):
        halves = find_halves(joint)
    chooser = _Chooser(joint, halves)
    first = chooser.partition(_up_to(Cost.FREE))
    allowed = memory_budget * first.saved_bytes
    if first.saved_bytes <= allowed:
        return first
    for cost in (Cost.MEMORY, Cost.REDUCTION, Cost.LIBRARY):
        partition = chooser.partition(_up_to(cost))
        if partition.saved_bytes <= allowed:
            return _fewest_layers(chooser, cost, allowed)
    return partition


Allowed = Callable[[int], Cost]
"""By position of a node in the graph: the greatest cost at which it may be computed again."""


def _up_to(cost: Cost) -> Allowed:
    return lambda position: cost


def _fewest_layers(chooser: _Chooser, cost: Cost, allowed: float) -> Partition:
    """The partition that pays `cost` only for the first part of the graph, as short as possible."""

    def partition(end: int) -> Partition:
        return chooser.partition(lambda at: cost if at < end else Cost(cost - 1))

    steps = max(len(chooser.positions) // 32, 1)
    ends = range(0, len(chooser.positions) + steps, steps)
    first = bisect.bisect_left(ends, True, key=lambda end: partition(end).saved_bytes <= allowed)
    return partition(ends[min(first, len(ends) - 1)])


class _Chooser:
    """Makes partitions of one joint graph."""

    def __init__(self, joint: JointGraph, halves: Halves) -> None:
        self.joint = joint
        self.halves = halves
        if compute_what_is_at_hand(joint, halves, is_fused):
            self.halves = find_halves(joint)
        available = {**self.halves.forward, **self.halves.early}
        ordered = [node for node in joint.graph.nodes if node in available]
        self.positions = {node: index for index, node in enumerate(ordered)}
        self.read = self._read_by_backward()
        self.needed = self._needed()
        self.exact = sought_values(self.halves) | counted_values(self.halves)
        self.costs = {node: self._cost(node) for node in self.needed}
        self.written = joint.written_inputs
        self.saved_by_eager = _saved_by_eager(joint)
        self.computed_before = {self._inputs()[index] for index in joint.interior_inputs}

    def partition(self, allowed: Allowed) -> Partition:
        """The partition that saves fewest bytes, computing again no node that costs more than
        `allowed`.
        """
        return split(self.joint, self.halves, self._saved(allowed))

    def _read_by_backward(self) -> set[fx.Node]:
        """Values independent of the tangents that are returned, or read where tangents are."""
        late = [node for node in self.halves.backward if node not in self.halves.early]
        read = {value for node in late for value in node.all_input_nodes}
        read.update(
            node
            for node in self.joint.outputs[self.joint.output_count :]
            if isinstance(node, fx.Node)
        )
        return {node for node in read if node in self.positions}

    def _needed(self) -> list[fx.Node]:
        """The nodes that the sought ones are computed from, and these, in order; constants left
        out.
        """
        nodes: set[fx.Node] = set()
        stack = list(self.read)
        while stack:
            node = stack.pop()
            if node not in nodes and node.op != "get_attr":
                nodes.add(node)
                stack.extend(node.all_input_nodes)
        return sorted(nodes, key=self.positions.__getitem__)

    def _cost(self, node: fx.Node) -> Cost:
        if node.op == "placeholder":
            return Cost.FORBIDDEN
        if node in self.halves.early:
            return Cost.FREE  # backward is where it would be computed anyway
        target = node.target
        if node in self.exact or ("checkpoint" in node.meta and self._leaves_its_region(node)):
            return Cost.FORBIDDEN
        if not isinstance(target, OpOverload):
            return self._cost_of_call(node)
        if torch_compat.has_effect(target):
            return Cost.FORBIDDEN
        if torch_compat.is_view_operator(target) or "checkpoint" in node.meta:
            return Cost.FREE
        if is_of_library(node):
            return Cost.LIBRARY
        if not is_pointwise(target):
            return Cost.REDUCTION
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and not value.dtype.is_floating_point:
            return Cost.FREE  # indices and masks: cheap, few, and wider than what they come from
        return Cost.MEMORY if self._is_read_from_memory(node) else Cost.FREE

    def _cost_of_call(self, node: fx.Node) -> Cost:
        """The cost of a node that calls no ATen operator. Numbers are free, as are items of a
        result, which cost what computes that result; conditions and loops are repeated in
        checkpointed regions only.
        """
        graphs = getattr(node.target, "graphs", None)
        if graphs is None:
            return Cost.FREE
        if isinstance(node.target, EagerCall) and "checkpoint" not in node.meta:
            return Cost.LIBRARY
        in_region = "checkpoint" in node.meta and not (
            has_effect(node) or any(_draws(subgraph.graph) for subgraph in graphs)
        )
        return Cost.FREE if in_region else Cost.FORBIDDEN

    def _leaves_its_region(self, node: fx.Node) -> bool:
        """Whether the forward half reads `node`, or a view of it, outside of its checkpointed
        region. It is not computed again, so that backward computes one region at a time; a view
        is, from what is saved in its place.
        """
        if saved_in_place_of(node) is not node:
            return False
        region = node.meta["checkpoint"]
        readers = [user for user in node.users if user in self.halves.forward]
        while readers:
            reader = readers.pop()
            if reader.meta.get("checkpoint") != region:
                return True
            if saved_in_place_of(reader) is node:
                readers += [user for user in reader.users if user in self.halves.forward]
        return False

    def _is_read_from_memory(self, node: fx.Node) -> bool:
        """Whether a library call of the backward half reads `node`, or a view of it."""
        for user in node.users:
            if view_source(user) is node and self._is_read_from_memory(user):
                return True
            if user in self.halves.backward and not is_fused(user):
                return True
        return False

    def _inputs(self) -> list[fx.Node]:
        return list(self.joint.graph.find_nodes(op="placeholder"))

    def _price(self, node: fx.Node) -> int:
        """The cost of saving `node`. Nothing, if eager saves it as well. Inputs are there anyway,
        unless they are written to; but those that were computed before the graph would be kept
        alive, and the program may write to them in place before backward, since eager does not
        mind.
        """
        value = node.meta["val"]
        if isinstance(value, (tuple, list)):
            return UNLIMITED
        if saved_in_place_of(node) is not node:
            return UNLIMITED  # what it is a view of is saved
        if node in self.saved_by_eager and node not in self.written:
            return 0
        if node in self.computed_before:
            return RELUCTANCE * byte_count(value) + 1
        if node.op == "placeholder" and node not in self.written:
            return min(byte_count(value), 1)
        size = byte_count(value)
        return size - size // PREFERENCE if is_of_library(node) else size

    def _saved(self, allowed: Allowed) -> list[fx.Node]:
        """The values on the cheapest cut."""
        network = FlowNetwork()
        source, sink = network.vertex(), network.vertex()
        entries = {node: network.vertex() for node in self.needed}
        exits = {node: network.vertex() for node in self.needed}
        for node in self.needed:
            network.edge(entries[node], exits[node], self._price(node))
            if self.costs[node] > allowed(self.positions[node]):
                network.edge(source, entries[node], UNLIMITED)
            if node in self.read:
                network.edge(exits[node], sink, UNLIMITED)
            for user in node.users:
                if user in entries:
                    network.edge(exits[node], entries[user], UNLIMITED)
        near = network.source_side(source, sink)
        return [node for node in self.needed if entries[node] in near and exits[node] not in near]


def is_of_library(node: fx.Node) -> bool:
    """Whether a library call gives a node, which is in memory anyway: another that is saved in its
    place has to be written.
    """
    return isinstance(node.target, OpOverload) and (facts(node.target).kind is OperatorKind.LIBRARY)


PREFERENCE = 1024
"""One in so many bytes of a library call's result: what may be saved beside it, such as two numbers
of a row of some thousands, rather than something of its size that is written for backward alone.
More of it may be alive than that something, which the next layer may read, too.
"""

RELUCTANCE = 4
"""The number of bytes that are rather saved than one of an input that eager does not save."""


def _saved_by_eager(joint: JointGraph) -> set[fx.Node]:
    """The inputs and results that eager saves."""
    inputs = list(joint.graph.find_nodes(op="placeholder"))
    saved = set()
    for save in joint.eager_saves:
        match save.place:
            case FromInput(index):
                saved.add(inputs[index])
            case Leaf(number) if isinstance(spec := joint.results[number], FromGraph):
                saved.add(joint.outputs[spec.position])
    return saved
