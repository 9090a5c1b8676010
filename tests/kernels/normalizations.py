"""Normalisations whose backward gathers along rows and along columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.gpu.support import gradients


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight)


def layer_norm_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Backward computes the norm again from the deviations that columns gather, too."""
    return torch.nn.functional.gelu(layer_norm(x, weight, bias))


def layer_norm_at_places(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """What is normalised depends on the place in a text, so that there are two loops over rows."""
    places = torch.linspace(0, 1, x.shape[1])
    return torch.nn.functional.layer_norm(x * places[:, None], weight.shape, weight, bias)


def calls_of(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> list[Any]:
    """The objects on which a method is called from now on, as it is called."""
    called: list[Any] = []
    original = getattr(owner, method)

    def noted(own: Any) -> None:
        called.append(own)
        original(own)

    monkeypatch.setattr(owner, method, noted)
    return called


def inputs_of(
    shape: Sequence[int], vectors: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, ...]:
    """Rows, and so many vectors as long as one."""
    torch.manual_seed(0)
    return tuple(torch.randn(size).to(dtype) for size in (shape, *[shape[-1:]] * vectors))


def check_gradients(
    function: Callable[..., Any],
    compiled: Callable[..., Any],
    inputs: tuple[torch.Tensor, ...],
    share: float,
) -> None:
    """Gradients stray from exact ones at most so many times as far as eager's."""
    exact = gradients(function, tuple(value.double() for value in inputs))
    eager, found = gradients(function, inputs), gradients(compiled, inputs)
    for own, other, wanted in zip(found, eager, exact, strict=True):
        error, allowed = ((given.double() - wanted).abs().max() for given in (own, other))
        assert error <= share * allowed + 1e-6
