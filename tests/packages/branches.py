"""A program with conditions and a loop, which packages of every kind hold."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops import while_loop


class Branches(torch.nn.Module):
    """Conditions, one in another, and a loop; with weights, constants and sizes that vary."""

    def __init__(self) -> None:
        super().__init__()
        self.small = torch.nn.Linear(4, 4)
        self.large = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> Any:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.max() > 3, lambda x: x.softmax(0), lambda x: x.sort(0)[0], (x,))

        def outer(x: torch.Tensor) -> torch.Tensor:
            return self.small(x) * torch.tensor([1.0, 2.0, 3.0, 4.0]) * x.shape[0]

        y = torch.cond(x.sum() > 0, inner, outer, (x,))
        count, y = while_loop(
            lambda count, y: count < steps, lambda count, y: (count + 1, self.large(y).relu()),
            (torch.zeros((), dtype=torch.int64), y),
        )  # fmt: skip
        return y, count
