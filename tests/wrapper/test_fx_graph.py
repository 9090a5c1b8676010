"""Graphs of fused kernels: run, read, changed, and handed to backends of level `fused`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import fx

import fusewright
from fusewright.backends import registry
from fusewright.errors import BackendCompilerFailed
from fusewright.runtime.fused_graph import KernelModule

Take = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[fx.GraphModule, Sequence[Any]]]]:
    """What backend `taking` of level `fused` is given; it runs each graph as it is."""
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    graphs: list[tuple[fx.GraphModule, Sequence[Any]]] = []

    def taking(graph_module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        graphs.append((graph_module, examples))
        return graph_module

    assert fusewright.register_backend(taking, level="fused") is taking
    fusewright.register_backend(taking, level="fused")  # the same again is no error
    yield graphs


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.relu(x @ w.t()) + 1, -1)


def compiled(function: Callable[..., Any] = program, **keywords: Any) -> Any:
    return fusewright.compile(function, backend="taking", options={"strict": True}, **keywords)


def test_a_backend_takes_runs_and_reads_it(taken: list[Any]) -> None:
    x, w = torch.randn(3, 4).double(), torch.randn(5, 4).double()
    made = compiled()
    for _ in range(2):
        torch.testing.assert_close(made(x, w), program(x, w))
    ((module, examples),) = taken
    assert [(tuple(one.shape), one.device.type) for one in examples] == [
        ((5, 4), "meta"),
        ((3, 4), "meta"),
    ]
    (kernel,) = (one for one in module.modules() if isinstance(one, KernelModule))
    assert "define i64 @kernel(" in kernel.kernel.source
    (launch,) = module.graph.find_nodes(op="call_module", target=kernel.kernel.name)
    assert any("torch.softmax" in origin.text for origin in launch.meta["origins"])
    (product,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.out)
    assert product.kwargs["out"].meta["layout"].size == (3, 5)


def test_it_can_be_changed_and_copied(taken: list[Any]) -> None:
    x, w = torch.randn(3, 4).double(), torch.randn(5, 4).double()
    compiled()(x, w)
    ((module, _),) = taken
    (name,) = (name for name, one in module.named_children() if isinstance(one, KernelModule))
    module.graph.eliminate_dead_code()  # launches write to memory, and stay
    module.recompile()
    twin = copy.deepcopy(module)
    calls: list[str] = []

    class Counting(torch.nn.Module):
        def __init__(self, kernel: torch.nn.Module) -> None:
            super().__init__()
            self.kernel = kernel

        def forward(self, *arguments: Any) -> None:
            calls.append(name)
            self.kernel(*arguments)

    setattr(twin, name, Counting(getattr(module, name)))
    torch.testing.assert_close(twin(w, x)[0], program(x, w))
    torch.testing.assert_close(module(w, x)[0], program(x, w))
    assert calls == [name]


def test_forward_and_backward_come_by_themselves(taken: list[Any]) -> None:
    x, w = torch.randn(3, 4), torch.randn(5, 4, requires_grad=True)
    made, expected = compiled(), torch.autograd.grad(program(x, w)[0, 0], w)
    (found,) = torch.autograd.grad(made(x, w)[0, 0], w)
    torch.testing.assert_close(found, *expected)
    assert len(taken) == 2


def test_sizes_are_nodes(taken: list[Any]) -> None:
    made = compiled(lambda x: torch.cat([x, x]).cos() * x.shape[0], dynamic=True)
    for count in (3, 7):
        x = torch.randn(count, 2)
        torch.testing.assert_close(made(x), torch.cat([x, x]).cos() * count)
    ((module, examples),) = taken
    assert isinstance(examples[0], int)
    assert module.graph.find_nodes(op="call_function", target=torch.empty_strided)


def test_conditions_are_graphs_of_their_own(taken: list[Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: v.exp(), lambda v: v.sin(), (x,))

    made = compiled(function)
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(made(x), function(x))
    assert len(taken) == 3


def test_constants_and_writes(taken: list[Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(torch.tensor([1.0, 2.0]))
        return x.sort()[0] + 1

    one, other = torch.ones(2), torch.ones(2)
    torch.testing.assert_close(compiled(function)(one), function(other))
    torch.testing.assert_close(one, other)


def test_refusals(taken: list[Any]) -> None:
    with pytest.raises(ValueError, match="level is one of torch, fused, not 'aten'"):
        fusewright.register_backend(lambda graph, examples: graph, name="x", level="aten")
    with pytest.raises(ValueError, match="there is a backend named 'taking' already"):
        fusewright.register_backend(lambda graph, examples: graph, name="taking")

    @fusewright.register_backend(level="fused")
    def failing(graph_module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        raise KeyError("no")

    made = fusewright.compile(program, backend="failing", options={"strict": True})
    with pytest.raises(BackendCompilerFailed, match="KeyError: 'no'"):
        made(torch.randn(3, 4).double(), torch.randn(5, 4).double())
