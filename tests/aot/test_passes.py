"""The clean-up passes on ATen graphs, as text before and after."""

from __future__ import annotations

import textwrap

import torch
from torch import fx

from fusewright.aot.common_subexpressions import merge_common_subexpressions
from fusewright.aot.dead_code import remove_dead_code

aten = torch.ops.aten


def text(graph: fx.Graph) -> str:
    """One line a node: name = operator(arguments)."""
    lines = []
    for node in graph.nodes:
        if node.op == "output":
            lines.append(f"return {node.args[0]}")
        elif node.op == "call_function":
            arguments = ", ".join(map(str, (*node.args, *node.kwargs.items())))
            lines.append(
                f"{node.name} = {getattr(node.target, '__name__', node.target)}({arguments})"
            )
        else:
            lines.append(f"{node.name}: {node.op}")
    return "\n".join(lines)


def expect(graph: fx.Graph, wanted: str) -> None:
    graph.lint()
    assert text(graph) == textwrap.dedent(wanted).strip()


def test_equal_calls_are_merged_and_others_are_not() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(aten.exp.default, (x,))
    b = graph.call_function(aten.exp.default, (x,))
    c = graph.call_function(aten.mul.Tensor, (a, 1))
    d = graph.call_function(aten.mul.Tensor, (b, 1.0))  # another result type for integers
    e = graph.call_function(aten.mul.Tensor, (b, 0.0))
    f = graph.call_function(aten.mul.Tensor, (b, -0.0))  # another sign
    graph.output((c, d, e, f))
    assert merge_common_subexpressions(graph) == 1
    expect(
        graph,
        """
        x: placeholder
        exp_default = exp.default(x)
        mul_tensor = mul.Tensor(exp_default, 1)
        mul_tensor_1 = mul.Tensor(exp_default, 1.0)
        mul_tensor_2 = mul.Tensor(exp_default, 0.0)
        mul_tensor_3 = mul.Tensor(exp_default, -0.0)
        return (mul_tensor, mul_tensor_1, mul_tensor_2, mul_tensor_3)
        """,
    )


def test_random_calls_unfilled_memory_and_two_outputs_are_not_merged() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    calls = [
        graph.call_function(op, args)
        for op, args in ((aten.rand_like.default, (x,)), (aten.empty.memory_format, ([3],)))
        for _ in range(2)
    ]
    outputs = [graph.call_function(aten.exp.default, (x,)) for _ in range(2)]
    graph.output((*calls, *outputs))
    assert merge_common_subexpressions(graph) == 0


def test_dead_code_goes_with_what_only_it_read() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.placeholder("unused")
    a = graph.call_function(aten.exp.default, (x,))
    graph.call_function(aten.add.Tensor, (a, 1))
    graph.output((graph.call_function(aten.neg.default, (x,)),))
    assert remove_dead_code(graph) == 2
    expect(
        graph,
        """
        x: placeholder
        unused: placeholder
        neg_default = neg.default(x)
        return (neg_default,)
        """,
    )
