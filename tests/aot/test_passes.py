"""The clean-up passes on ATen graphs, as text before and after."""

from __future__ import annotations

import textwrap
from typing import Any

import torch
from torch import fx

import fusewright
from fusewright.aot import trace_inference
from fusewright.aot.accumulation import accumulate_in_place
from fusewright.aot.common_subexpressions import merge_common_subexpressions
from fusewright.aot.constant_folding import fold_constants
from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.no_operations import remove_no_operations
from fusewright.aot.tracer import trace
from fusewright.context import CompileContext
from fusewright.fake import FakeMode

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
    sine = graph.call_function(aten.sin.default, (x,))
    outputs += [graph.call_function(aten.select.int, (sine, 0, 1)) for _ in range(2)]
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


def traced(program: Any, *inputs: torch.Tensor) -> fx.Graph:
    """The graph of a program as it is traced, before the passes."""
    mode = FakeMode()
    fakes = [mode.fake_distinct(one) for one in inputs]
    graph = fx.Graph()
    nodes = [graph.placeholder(name) for name in "xyz"[: len(inputs)]]
    graph.output(graph.call_function(program, tuple(nodes)))
    found = trace(fx.GraphModule({}, graph), fakes, mode, {})
    found.graph.output(tuple(found.results))
    return found.graph


def test_operators_that_change_nothing_are_removed() -> None:
    def program(x: torch.Tensor) -> Any:
        same = (x * 1).clone().to(torch.float32)
        other = (x.clone().t().clone(memory_format=torch.contiguous_format) + 0) ** 1
        return same.exp(), other / 2, x.to(torch.float64)

    graph = traced(program, torch.randn(2, 3))
    assert remove_no_operations(graph) == 4
    expect(
        graph,
        """
        x: placeholder
        t = t.default(x)
        clone_2 = clone.default(t, ('memory_format', torch.contiguous_format))
        add = add.Tensor(clone_2, 0)
        exp = exp.default(x)
        div = div.Tensor(add, 2)
        _to_copy = _to_copy.default(x, ('dtype', torch.float64))
        return (exp, div, _to_copy)
        """,
    )


def test_results_keep_memory_of_their_own() -> None:
    graph = traced(lambda x: (x * 1, x.exp() * 1), torch.randn(2))
    assert remove_no_operations(graph) == 0
    graph = traced(lambda x: x.clone().view(-1), torch.randn(2, 2))
    assert remove_no_operations(graph) == 0


def test_complex_one_is_no_neutral_element() -> None:
    infinite = torch.tensor([complex("inf+1j")])
    for program in (lambda z: (z * 1).real, lambda z: (z / 1).imag, lambda z: (z**1 + z).real):
        compiled = fusewright.compile(program, options={"strict": True})
        torch.testing.assert_close(compiled(infinite), program(infinite), equal_nan=True)
    assert remove_no_operations(traced(lambda z: (z / 1) + z, infinite)) == 0


def test_equal_results_keep_memory_of_their_own() -> None:
    """Two copies of one tensor, each seen through a reshape, are not one."""
    graph = traced(lambda x: (x.reshape(-1), x.flatten().view(-1, 1)), torch.randn(6, 4).t())
    assert merge_common_subexpressions(graph) == 0


def test_filled_tensors_are_computed_while_compiling() -> None:
    def program(x: torch.Tensor) -> Any:
        filled = torch.ops.aten.full.default([4], 2.0)
        drawn = torch.ops.aten.bernoulli.p(filled, 0.5)
        return x + (filled * 3.0).exp().log().unsqueeze(1), drawn

    graph = traced(program, torch.randn(4, 2))
    assert fold_constants(graph) == 4
    remove_dead_code(graph)
    expect(
        graph,
        """
        x: placeholder
        full = full.default([4], 2.0)
        bernoulli = bernoulli.p(full, 0.5)
        full_default_3 = full.default([4, 1], 6.0, OPTIONS)
        add = add.Tensor(x, full_default_3)
        return (add, bernoulli)
        """.replace("OPTIONS", f"('dtype', torch.float32), ('device', {torch.device('cpu')!r})"),
    )


def test_rows_are_added_to_a_sum_and_not_to_zeros() -> None:
    def program(x: torch.Tensor, words: torch.Tensor, rows: torch.Tensor) -> Any:
        product = aten.mm.default(x, x)
        zeros = aten.full.default([4, 4], 0, dtype=torch.float32)
        ones = aten.full.default([4, 4], 1, dtype=torch.float32)
        one = aten.index_put.default(zeros, [words], rows, True)
        first = aten.add.Tensor(product, one)
        two = aten.index_put.default(zeros, [words], rows, True)
        second = aten.add.Tensor(two, first)
        read_twice = aten.index_put.default(zeros, [words], rows, True)
        stored = aten.index_put.default(zeros, [words], rows)
        not_zero = aten.index_put.default(ones, [words], rows, True)
        third = aten.add.Tensor(aten.add.Tensor(aten.add.Tensor(x, read_twice), stored), not_zero)
        wider = aten.index_put.default(zeros, [words], rows, True)
        return second, third, read_twice, aten.add.Tensor(wider, x[0])

    graph = traced(program, torch.randn(4, 4), torch.tensor([1, 2]), torch.randn(2, 4))
    assert accumulate_in_place(graph) == 2
    remove_dead_code(graph)
    expect(
        graph,
        """
        x: placeholder
        y: placeholder
        z: placeholder
        mm = mm.default(x, x)
        full = full.default([4, 4], 0, ('dtype', torch.float32))
        full_1 = full.default([4, 4], 1, ('dtype', torch.float32))
        add = index_put.default(mm, [y], z, True)
        add_1 = index_put.default(add, [y], z, True)
        index_put_2 = index_put.default(full, [y], z, True)
        index_put_3 = index_put.default(full, [y], z)
        index_put_4 = index_put.default(full_1, [y], z, True)
        add_2 = add.Tensor(x, index_put_2)
        add_3 = add.Tensor(add_2, index_put_3)
        add_4 = add.Tensor(add_3, index_put_4)
        index_put_5 = index_put.default(full, [y], z, True)
        select = select.int(x, 0, 0)
        add_5 = add.Tensor(index_put_5, select)
        return (add_1, add_4, index_put_2, add_5)
        """,
    )


def test_passes_leave_results_as_they_are() -> None:
    def program(x: torch.Tensor) -> Any:
        ones = torch.ops.aten.full.default([3], 1, dtype=torch.int64)
        return (x * 1).sin() * ones, (ones + 1) / 2, x * (ones * 2)

    x = torch.randn(3)
    graph = trace_inference(fx.symbolic_trace(program), [x], CompileContext())
    for one, other in zip(graph.graph_module()(x), program(x), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
