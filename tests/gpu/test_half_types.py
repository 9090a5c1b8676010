"""On a GPU: functions of half types, and their gradients, at each number of the type. Kernels
compute them by approximations, which may be off from float64 by a small part of a unit more than
eager's kernels are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import fusewright
from tests.gpu.support import CUDA, needs_gpu
from tests.half_types import HALVES, MORE, exact_gelu, exact_tanh_gelu, numbers, units_off

pytestmark = needs_gpu

Function = Callable[[torch.Tensor], torch.Tensor]


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "gelu": (functional.gelu, exact_gelu),
    "gelu_tanh": (tanh_gelu, exact_tanh_gelu),
    "sigmoid": (torch.sigmoid, torch.sigmoid),
    "silu": (functional.silu, functional.silu),
    "logsigmoid": (functional.logsigmoid, functional.logsigmoid),
    "exp": (torch.exp, torch.exp),
    "tanh": (torch.tanh, torch.tanh),
}


def value_and_slope(function: Function, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = x.clone().requires_grad_()
    result = function(leaf)
    (slope,) = torch.autograd.grad(result, leaf, torch.ones_like(result))
    return result.detach(), slope


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_at_most_those_of_eager(name: str, dtype: torch.dtype) -> None:
    function, exactly = FUNCTIONS[name]
    x = numbers(dtype).to(CUDA)
    x = x[x.isfinite()]
    compiled = fusewright.compile(function, fullgraph=True, options={"strict": True})
    wanted = value_and_slope(exactly, x.double())
    eager, ours = value_and_slope(function, x), value_and_slope(compiled, x)
    for usual, computed, exact in zip(eager, ours, wanted, strict=True):
        usual_off, off = units_off(usual, exact, dtype), units_off(computed, exact, dtype)
        is_near = off <= usual_off.clamp(min=0.5) + MORE
        worst = int((off - usual_off).argmax())
        assert bool(is_near.all()), (float(x[worst]), float(off[worst]), float(usual_off[worst]))
