"""Capture beside torch's own front end, which leaves its marks on nn.Module."""

from __future__ import annotations

import torch
from torch import nn

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
