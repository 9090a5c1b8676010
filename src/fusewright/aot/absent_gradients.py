"""The backward graph for a call of which some results go nowhere: they have no gradient.

    backward(cos, tangent_0, tangent_1)              backward(cos, tangent_0)
        mul = aten.mul(tangent_1, cos)         ->        return (tangent_0,)
        add = aten.add(tangent_0, mul)
        return (add, mul)                            (the gradient `mul` is absent)

Zeros in place of what is absent would be wrong, since zero times infinity is not a number, and
would be computed with. In eager an absent gradient is not added, and what is computed of absent
gradients alone is absent. Where an operator of several arguments takes an absent one beside others,
and is no addition, that one is computed from zeros after all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

import torch
from torch import fx

from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.graph import AtenGraph
from fusewright.aot.no_operations import is_alike
from fusewright.fake_rules.geometry import same_sizes
from fusewright.records import record

aten = torch.ops.aten

T = TypeVar("T")


@record
class PartialBackward:
    """A backward graph that computes some of the gradients from some of the tangents."""

    graph: AtenGraph
    """The backward graph, whose inputs are the saved values and then the tangents."""

    tangents: tuple[int, ...]
    """The numbers, in the whole graph, of the tangents that it takes."""

    outputs: tuple[int, ...]
    """The numbers, in the whole graph, of the gradients that it gives."""


class ByAbsentTangents(Generic[T]):
    """Code compiled for calls in which certain tangents are absent: once for each set of their
    numbers, when a call first asks for it. Any number of threads may ask.
    """

    def __init__(self) -> None:
        self._compiled: dict[frozenset[int], T] = {}
        self._lock = threading.Lock()

    def get(self, absent: frozenset[int], compile_without: Callable[[frozenset[int]], T]) -> T:
        """The code that `compile_without` gives, or has given, for these."""
        compiled = self._compiled.get(absent)
        if compiled is None:
            with self._lock:
                compiled = self._compiled.get(absent)
                if compiled is None:
                    compiled = self._compiled[absent] = compile_without(absent)
        return compiled


def whole_backward(graph: AtenGraph, saved_count: int) -> PartialBackward:
    """`graph` itself, which takes `saved_count` saved values before the tangents."""
    tangents = tuple(range(len(graph.placeholders) - saved_count))
    return PartialBackward(graph, tangents, tuple(range(len(graph.outputs))))


def backward_without(
    backward: AtenGraph, saved_count: int, absent: Collection[int]
) -> PartialBackward:
    """The part of `backward` that is left without the tangents `absent`, given by number.

    `saved_count`: how many placeholders come before the tangents; all of them stay.
    """
    if not absent:
        return whole_backward(backward, saved_count)
    graph = fx.Graph()
    copies: dict[fx.Node, Any] = {}
    without = _AbsentNodes(backward, saved_count, absent)
    for node in backward.graph.nodes:
        if node.op == "output":
            continue
        present = without.only_summand(node)
        if present is None:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        elif is_alike(present, node):
            copies[node] = copies[present]
        else:
            copies[node] = graph.call_function(aten.clone.default, (copies[present],))
            copies[node].meta.update(node.meta)
    kept = [
        number
        for number, node in enumerate(backward.outputs)
        if not (isinstance(node, fx.Node) and node in without.nodes)
    ]
    outputs = [backward.outputs[number] for number in kept]
    graph.output(tuple(copies[node] if isinstance(node, fx.Node) else node for node in outputs))
    remove_dead_code(graph, list(graph.find_nodes(op="placeholder"))[saved_count:])
    tangents = _erase_unread(graph, saved_count, absent)
    used = {str(node.target) for node in graph.find_nodes(op="get_attr")}
    constants = {name: value for name, value in backward.constants.items() if name in used}
    return PartialBackward(AtenGraph(graph=graph, constants=constants), tangents, tuple(kept))


class _AbsentNodes:
    """Which nodes of a backward graph are computed from absent tangents alone."""

    def __init__(self, backward: AtenGraph, saved_count: int, absent: Collection[int]) -> None:
        tangents = backward.placeholders[saved_count:]
        self.nodes = {tangents[number] for number in absent}
        self._gradients = set(tangents)
        """Nodes that depend on a tangent."""

        for node in backward.graph.nodes:
            gradients = [
                argument for argument in node.all_input_nodes if argument in self._gradients
            ]
            if not gradients or node.op == "output":
                continue
            self._gradients.add(node)
            # What is added to a gradient is one too, though it may depend on no tangent, as zeros.
            is_sum = node.target is aten.add.Tensor
            if self.nodes.issuperset(node.all_input_nodes if is_sum else gradients):
                self.nodes.add(node)

    def only_summand(self, node: fx.Node) -> fx.Node | None:
        """The one gradient that is there, where `node` adds it to an absent one; it may have other
        strides than the sum.
        """
        if node.target is not aten.add.Tensor or node in self.nodes or node.kwargs:
            return None
        present = [argument for argument in node.all_input_nodes if argument not in self.nodes]
        if len(present) != 1 or len(node.all_input_nodes) != 2:
            return None
        summand, total = present[0].meta["val"], node.meta["val"]
        same = summand.dtype == total.dtype and same_sizes(summand.shape, total.shape)
        return present[0] if same else None


def _erase_unread(graph: fx.Graph, saved_count: int, absent: Collection[int]) -> tuple[int, ...]:
    """Erase the placeholders of `absent` tangents that nothing reads; gives the numbers of those
    that stay.
    """
    kept = []
    for number, node in enumerate(list(graph.find_nodes(op="placeholder"))[saved_count:]):
        if number in absent and not node.users:
            graph.erase_node(node)
        else:
            kept.append(number)
    return tuple(kept)
