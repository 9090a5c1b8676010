"""Which eager operators a generated kernel is measured against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import fx
from torch.nn import functional

from benchmarks import kernels


def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A group, and one of a product; a view stands between operators of the second one."""
    hidden = torch.mm(functional.gelu(x * 2), weight)
    return torch.relu(hidden).transpose(0, 1) + 1


@pytest.fixture
def model() -> Iterator[kernels.CompiledModel]:
    inputs = (torch.randn(6, 8), torch.randn(8, 10))
    with torch.no_grad():
        yield kernels.compile_captured(fx.symbolic_trace(program), inputs)


def test_each_kernel_replaces_its_own_operators(
    model: kernels.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SECONDS", 0.0)
    rows = list(kernels.measure("small", model))
    assert [row.operators for row in rows] == [
        ("aten.mul.Tensor", "aten.gelu.default"),
        ("aten.mm.default", "aten.relu.default", "aten.add.Tensor"),
    ]
    assert all(row.uses == 1 and row.kernel_time > 0 and row.eager_time > 0 for row in rows)


def test_eager_function_computes_what_the_graph_does(model: kernels.CompiledModel) -> None:
    """Views between the nodes are run again on what the function itself computed."""
    values = kernels.eager_values(model)
    graph = model.graph.graph
    names = frozenset(node.name for node in graph.nodes if node.name.startswith(("relu", "add")))
    nodes = kernels.replaced_nodes(graph, names)
    assert any(kernels.is_view(node) for node in nodes)
    function, arguments = kernels.eager_function(nodes, values)
    (result,) = function(*arguments)
    assert torch.equal(result, program(*model.inputs))


def test_a_launch_writes_what_eager_computes(model: kernels.CompiledModel) -> None:
    """The copies of a kernel's arguments are those of its first call."""
    kernel = model.kernels.definitions[0]
    arguments = list(model.arguments[kernel.name])
    (place,) = (n for n, one in enumerate(kernel.arguments) if one.is_written)
    arguments[place] = torch.full_like(arguments[place], torch.nan)
    model.module.call.__globals__[kernel.name](*arguments)  # type: ignore[attr-defined]
    wanted = functional.gelu(model.inputs[0] * 2)
    torch.testing.assert_close(arguments[place], wanted)
