"""The operators of `torch.amp.GradScaler`, compiled: what they write, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright

INFINITE = float("inf")


def unscale(gradients: list[torch.Tensor], found: torch.Tensor, inverse: torch.Tensor) -> Any:
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)
    return found


def update(scale: torch.Tensor, steps: torch.Tensor, found: torch.Tensor) -> Any:
    return torch._amp_update_scale_(scale, steps, found, 1.1, 0.3, 3)


def alike(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> None:
    outcomes = []
    for run in (function, fusewright.compile(function, options={"strict": True})):
        arguments = make()
        outcomes.append((run(*arguments), arguments))
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, INFINITE], [float("nan")], []])
def test_gradients_are_unscaled(values: list[float], found: float, dtype: torch.dtype) -> None:
    def make() -> tuple[Any, ...]:
        gradients = [torch.tensor(values, dtype=dtype), torch.tensor(5.0, dtype=dtype)]
        return gradients, torch.tensor([found]), torch.tensor([0.3])

    alike(unscale, make)


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("scale", [1.0, 65536.3, 3.3e38])
@pytest.mark.parametrize("size", [(), (1,)])
def test_the_scale_is_updated(size: Any, scale: float, steps: int, found: float) -> None:
    def make() -> tuple[Any, ...]:
        counted = torch.full(size, steps, dtype=torch.int32)
        return torch.full(size, scale), counted, torch.tensor([found])

    alike(update, make)
