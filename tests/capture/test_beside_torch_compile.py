"""Capture beside torch's own front end, which leaves its marks on nn.Module."""

from __future__ import annotations

import torch
from torch import nn

import fusewright
from fusewright.capture import trace


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:2]:  # makes a new ModuleList
            x = layer(x)
        return x


def test_modules_made_inside_after_torch_compile() -> None:
    torch.compile(nn.Linear(4, 4), backend="eager")(torch.ones(1, 4))
    model = Stack().eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        graph = trace(model, x)
        calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    assert len(calls) == 2


def test_optimizers_that_torch_keeps_from_its_own_compiler() -> None:
    """Importing that compiler disables what sets up the state of an optimizer."""
    import torch._dynamo

    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(3)
    assert hasattr(torch.optim.Adam._init_group, "_torchdynamo_orig_callable")
    step = fusewright.compile(optimizer.step, fullgraph=True, backend="eager")
    step()
    step()
    torch.testing.assert_close(weight, torch.full((3,), 1 - 2e-3))


def test_functions_that_torch_keeps_its_own_compiler_out_of() -> None:
    """Importing that compiler wraps `torch.manual_seed` once more."""
    import torch._dynamo

    def program(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return x + torch.rand(3)

    assert torch.manual_seed is not torch.random.manual_seed
    found = fusewright.compile(program, fullgraph=True, backend="eager")(torch.ones(3))
    torch.testing.assert_close(found, program(torch.ones(3)))
