"""Every number of a half type, functions of them, and how far results are from exact ones, in units
of the last place there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch.nn import functional

from fusewright.records import record

HALVES: Final = (torch.float16, torch.bfloat16)

MORE: Final = 1 / 8
"""Of a unit: what an approximation of float32 may add to an error."""

LEAST: Final = 2.0**-110
"""What is smaller may be 0."""


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Every number of a half type, infinities and NaN included."""
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)


def units_off(computed: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """How far numbers of a half type are from exact ones, in units of the last place there."""
    information = torch.finfo(dtype)
    size = torch.clamp(exact.abs(), min=max(information.smallest_normal, LEAST))
    unit = 2.0 ** (size.frexp().exponent.double() - 1) * information.eps
    return ((computed.double() - exact).abs() / unit).nan_to_num(0.0)


def exact_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU of doubles without cancellation."""
    return x * 0.5 * torch.special.erfc(-x * 0.5**0.5)


def exact_tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU by tanh of doubles without cancellation."""
    return x * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))


def exact_gelu_slope(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.special.erfc(-x * 0.5**0.5) + x * (-x * x / 2).exp() / (2 * torch.pi) ** 0.5


def exact_tanh_gelu_slope(x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(exact_tanh_gelu(leaf).sum(), leaf)
    return slope


Function = Callable[[torch.Tensor], torch.Tensor]


@record
class HalfFunction:
    """A function that kernels compute of half types, with its slope."""

    function: Function
    value: Function
    """Of doubles, without cancellation, as the next."""

    slope: Function


def value_and_slope(function: Function, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = x.clone().requires_grad_()
    result = function(leaf)
    (slope,) = torch.autograd.grad(result, leaf, torch.ones_like(result))
    return result.detach(), slope


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


FUNCTIONS: Final = {
    "gelu": HalfFunction(functional.gelu, exact_gelu, exact_gelu_slope),
    "gelu_tanh": HalfFunction(tanh_gelu, exact_tanh_gelu, exact_tanh_gelu_slope),
    "sigmoid": HalfFunction(torch.sigmoid, torch.sigmoid, lambda x: x.sigmoid() * (-x).sigmoid()),
    "silu": HalfFunction(
        functional.silu,
        functional.silu,
        lambda x: x.sigmoid() * (1 + x * (-x).sigmoid()),
    ),
    "logsigmoid": HalfFunction(
        functional.logsigmoid, functional.logsigmoid, lambda x: (-x).sigmoid()
    ),
    "exp": HalfFunction(torch.exp, torch.exp, torch.exp),
    "tanh": HalfFunction(
        torch.tanh, torch.tanh, lambda x: 4 * (2 * x).sigmoid() * (-2 * x).sigmoid()
    ),
}
"""By name. Of a double, 1 - tanh(x)**2 is 0 from 19.06 on, where it is 1e-16."""


def places_farther_than_eager(
    name: str, compiled: Function, x: torch.Tensor
) -> list[tuple[str, float, float, float, float]]:
    """Where the value or slope that a compiled function has is farther from the exact one than half
    a unit or what eager has, and `MORE`: which of both, the number, what is computed, what eager
    has, and what is exact.
    """
    own = FUNCTIONS[name]
    double = x.double()
    found = []
    for part, usual, computed, exact in zip(
        ("value", "slope"),
        value_and_slope(own.function, x),
        value_and_slope(compiled, x),
        (own.value(double), own.slope(double)),
        strict=True,
    ):
        usual_off, off = units_off(usual, exact, x.dtype), units_off(computed, exact, x.dtype)
        far = (off > usual_off.clamp(min=0.5) + MORE) | (computed.isnan() != usual.isnan())
        columns = [each[far].tolist() for each in (x, computed, usual, exact)]
        found += [(part, *row) for row in zip(*columns, strict=True)]
    return found
