"""docs/adding-an-operator.md: its examples, followed word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import fx

from fusewright.aot import COMPILER_DECOMPOSITIONS
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.lower import pointwise
from fusewright.lower.rules import RULES
from fusewright.pipeline import compile_graph
from tests.lower.support import check

PAGE = Path(__file__).parents[2] / "docs" / "adding-an-operator.md"
NAME = "aten.special_xlog1py.default"
X = torch.tensor([0.0, 0.0, 2.0, -3.0, float("inf"), 1.0])
Y = torch.tensor([float("nan"), -1.0, 0.5, 1e-9, 3.0, -2.0])


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler with what the page adds to it."""
    formula, row = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    variables = dict(vars(pointwise))
    exec(compile(formula, str(PAGE), "exec"), variables)
    table = eval(f"{{{row}}}", variables)
    assert NAME in table
    for name, its_formula in table.items():
        rule = pointwise._rule_of(name, its_formula, pointwise.ComputeType.RESULT)
        monkeypatch.setitem(RULES, name, rule)


def extern_calls_of_prelu() -> tuple[str, ...]:
    """The library calls of PReLU, compiled with its gradient, which is checked."""

    def program(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.nn.functional.prelu(x, weight) * 2,)

    inputs = [torch.linspace(-2, 2, 9).requires_grad_(), torch.tensor([0.25], requires_grad=True)]
    context = CompileContext(options=Options(verify=True, strict=True))
    graph = compile_graph(fx.symbolic_trace(program), inputs, context)
    gradients = torch.autograd.grad(graph(*inputs)[0].sum(), inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(program(*inputs)[0].sum(), inputs))
    assert graph.training is not None and graph.training.backward is not None
    return (*graph.record.extern_calls, *graph.training.backward.record.extern_calls)


def test_two_files_are_all_that_a_gradient_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extern_calls_of_prelu() == ()
    (change,) = re.findall(r"```diff\n(.*?)```", PAGE.read_text(), flags=re.S)
    files = change.removeprefix("--- ").split("--- ")
    assert len(files) == 2
    for file in files:
        name, _, difference = file.partition("\n")
        for part in difference.split("@@\n"):
            after = "".join(line[1:] for line in part.splitlines(keepends=True))
            assert (PAGE.parents[1] / name).read_text().count(after) == 1, after
    forward, backward = re.findall(r"aten\._prelu\w+\.default", change)
    monkeypatch.delitem(RULES, forward)
    overload = torch.ops.aten._prelu_kernel_backward.default
    monkeypatch.delitem(COMPILER_DECOMPOSITIONS, overload)  # type: ignore[arg-type]
    assert extern_calls_of_prelu() == (forward, backward)


def test_before_it_is_a_library_call() -> None:
    result = check(torch.special.xlog1py, X, Y, externs=1)
    assert result.externs == [NAME]


@pytest.mark.usefixtures("added")
def test_after_it_is_a_loop() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        check(torch.special.xlog1py, X.to(dtype), Y.to(dtype))
    check(torch.special.xlog1py, X[:, None], 2)
    check(torch.special.xlog1py, 2, Y)


@pytest.mark.usefixtures("added")
def test_its_gradient_is_compiled_too() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.special.xlog1py(x.exp(), y).sin(),)

    inputs = [torch.rand(5, requires_grad=True) for _ in range(2)]
    context = CompileContext(options=Options(verify=True, strict=True))
    graph = compile_graph(fx.symbolic_trace(program), inputs, context)
    (result,), (expected,) = graph(*inputs), program(*inputs)
    gradients = torch.autograd.grad(result.sum(), inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected.sum(), inputs))
    assert graph.training is not None and graph.training.backward is not None
    for record in (graph.record, graph.training.backward.record):
        assert len(record.launches) == 1 and not record.extern_calls
