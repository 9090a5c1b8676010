"""Parts that programs share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn


def perceptron(*sizes: int, activation: Callable[[], nn.Module] = nn.GELU) -> nn.Sequential:
    """Linear layers with an activation between any two."""
    layers: list[nn.Module] = []
    for first, second in pairwise(sizes):
        layers += [nn.Linear(first, second), activation()]
    return nn.Sequential(*layers[:-1])


def gradients(module: nn.Module, loss: torch.Tensor) -> dict[str, Any]:
    """Runs backward; the loss and every parameter's gradient, which begins as None."""
    module.zero_grad(set_to_none=True)
    loss.backward()
    named = {name: one.grad for name, one in module.named_parameters()}
    return {"loss": loss.detach(), **named}
