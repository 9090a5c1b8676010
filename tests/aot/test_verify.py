"""The verifier of functional graphs: what it refuses, and which pass it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._higher_order_ops import scan

import fusewright
from fusewright.aot import clean_up, trace_inference
from fusewright.aot.verify import verify_graph
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import BackendCompilerFailed, MalformedProgram
from fusewright.passes import Pass

VERIFIED = CompileContext(options=Options(verify=True))


def program(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).exp() * x


def graph_of_program() -> fx.Graph:
    return trace_inference(fx.symbolic_trace(program), [torch.ones(3)], VERIFIED).graph


def calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def forget_result(graph: fx.Graph) -> None:
    del calls(graph)[1].meta["val"]


def read_what_comes_later(graph: fx.Graph) -> None:
    first, second, _ = calls(graph)
    first.append(second)
    second.append(first)
    second.prepend(graph.output_node().prev)


def compute_behind_the_output(graph: fx.Graph) -> None:
    graph.output_node().append(calls(graph)[-1])


def call_nothing(graph: fx.Graph) -> None:
    calls(graph)[0].target = "add"


def end_twice(graph: fx.Graph) -> None:
    with graph.inserting_before(calls(graph)[0]):
        graph.create_node("output", "output", (next(iter(graph.nodes)),))


FAULTS: list[tuple[Callable[[fx.Graph], None], str]] = [
    (forget_result, "exp.* its result on fakes is not known"),
    (read_what_comes_later, "which does not stand before it"),
    (compute_behind_the_output, "which does not stand before it"),
    (call_nothing, "it calls nothing"),
    (end_twice, "the output is not the last node alone"),
]


def test_graphs_that_are_traced_hold() -> None:
    verify_graph(graph_of_program(), "none")


@pytest.mark.parametrize(
    ("change", "words"), FAULTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_faults_are_refused(change: Callable[[fx.Graph], None], words: str) -> None:
    graph = graph_of_program()
    change(graph)
    with pytest.raises(MalformedProgram, match=f"after the pass somewhere: .*{words}"):
        verify_graph(graph, "somewhere")


def test_the_pass_that_is_at_fault_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = clean_up.PASSES
    monkeypatch.setattr(clean_up, "PASSES", (first, Pass("careless", forget_result), *others))
    with pytest.raises(MalformedProgram, match="after the pass careless"):
        graph_of_program()


def sums_to_the_end(x: torch.Tensor) -> torch.Tensor:
    def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
        total = (carry + row).tanh()
        return total, total.exp()

    carry, rows = scan(step, torch.zeros(3), x)
    return carry + rows.sum(0)


def leave_graphs_with_tanh_wrong(graph: fx.Graph) -> None:
    for node in calls(graph):
        if node.target is torch.ops.aten.tanh.default:
            del node.meta["val"]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_steps_of_loops_are_verified(monkeypatch: pytest.MonkeyPatch, requires_grad: bool) -> None:
    monkeypatch.setattr(
        clean_up, "PASSES", (Pass("careless", leave_graphs_with_tanh_wrong), *clean_up.PASSES)
    )
    options = {"strict": True, "verify": True}
    compiled = fusewright.compile(sums_to_the_end, fullgraph=True, options=options)
    with pytest.raises(BackendCompilerFailed, match=r"after the pass careless: .*tanh"):
        compiled(torch.randn(2, 3, requires_grad=requires_grad))
