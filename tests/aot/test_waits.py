"""The wait for a collective stands before the first reader of its result."""

from __future__ import annotations

import torch
from torch import fx

from fusewright import collectives
from fusewright.aot.waits import sink_waits

aten = torch.ops.aten


def names(graph: fx.Graph) -> list[str]:
    return [node.name for node in graph.nodes if node.op == "call_function"]


def collective(graph: fx.Graph, given: fx.Node) -> fx.Node:
    """A collective and its wait, one behind the other, as they are captured."""
    begun = graph.call_function(collectives.operator("all_reduce"), (given, "sum", "0"))
    return graph.call_function(collectives.operator("arrived"), (begun, given, 0, 1))


def test_what_stands_between_comes_first() -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    first, second = collective(graph, x), collective(graph, y)
    sin = graph.call_function(aten.sin.default, (x,))
    add = graph.call_function(aten.add.Tensor, (second, sin))
    graph.output((graph.call_function(aten.mul.Tensor, (first, add)),))
    assert sink_waits(graph) == 2
    assert names(graph) == [
        *("all_reduce_default", "all_reduce_default_1", "sin_default", "arrived_default_1"),
        *("add_tensor", "arrived_default", "mul_tensor"),
    ]


def test_a_result_that_is_returned_is_waited_for_last() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    reduced = collective(graph, x)
    graph.output((reduced, graph.call_function(aten.sin.default, (x,))))
    assert sink_waits(graph) == 1
    assert names(graph)[-1] == reduced.name


def test_a_collective_of_a_collective_waits_for_it() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((collective(graph, collective(graph, x)),))
    assert sink_waits(graph) == 0
    graph.lint()
