"""Operators on lists of tensors are taken apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from fusewright.aot import interpreter, trace_inference, with_results
from fusewright.context import CompileContext

CALLS: dict[str, Callable[..., Any]] = {
    "unary": lambda x, y: torch._foreach_sqrt(x),
    "scalar": lambda x, y: torch._foreach_add(x, 2.0),
    "list": lambda x, y: torch._foreach_add(x, y, alpha=0.5),
    "scalars": lambda x, y: torch._foreach_mul(x, [2.0, 3.0, 4.0]),
    "tensor": lambda x, y: torch._foreach_div(x, torch.tensor(2.0)),
    "power of a scalar": lambda x, y: torch._foreach_pow(2.0, x),
    "addcmul": lambda x, y: torch._foreach_addcmul(x, y, y, 0.5),
    "addcdiv scalars": lambda x, y: torch._foreach_addcdiv(x, y, y, [0.5, 1.0, 2.0]),
    "lerp": lambda x, y: torch._foreach_lerp(x, y, 0.25),
    "maximum": lambda x, y: torch._foreach_maximum(x, y),
    "maximum scalar": lambda x, y: torch._foreach_maximum(x, 0.5),
    "minimum scalars": lambda x, y: torch._foreach_minimum(x, [0.5, 0.1, 0.2]),
    "norm": lambda x, y: torch._foreach_norm(x),
    "greatest": lambda x, y: torch._foreach_norm(x, float("inf")),
    "max": lambda x, y: torch._foreach_max(x[:2]),
}

WRITES: dict[str, Callable[..., None]] = {
    "add_": lambda x, y: torch._foreach_add_(x, y),
    "copy_": lambda x, y: torch._foreach_copy_(x, y),
    "zero_": lambda x, y: torch._foreach_zero_(x),
    "sqrt_": lambda x, y: torch._foreach_sqrt_(x),
    "clamp_": lambda x, y: torch._foreach_clamp_max_(x, 0.5),
}


def tensors(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(2, 3), (), (0,)] if seed % 2 else [(2, 1), (4,), (1, 1)]
    return [torch.rand(shape, generator=generator) + 0.1 for shape in shapes]


def run(function: Callable[..., Any], x: list[torch.Tensor], y: list[torch.Tensor]) -> Any:
    graph = fx.Graph()
    names = [graph.placeholder(f"t{i}") for i in range(6)]
    graph.output(graph.call_function(function, (names[:3], names[3:])))
    inputs = [*x, *y]
    traced = trace_inference(fx.GraphModule({}, graph), inputs, CompileContext())
    assert not any("foreach" in str(node.target) for node in traced.graph.nodes)
    return with_results(traced, interpreter(traced))(inputs)


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    x, y = tensors(2), tensors(2)
    torch.testing.assert_close(list(run(CALLS[name], x, y)), list(CALLS[name](x, y)))


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("seed", [1, 2])
def test_writes(name: str, seed: int) -> None:
    x, y, expected = tensors(seed), tensors(seed), tensors(seed)
    run(WRITES[name], x, y)
    WRITES[name](expected, y)
    torch.testing.assert_close(x, expected)


def test_a_number_where_a_mask_holds() -> None:
    def write(x: list[torch.Tensor], y: list[torch.Tensor]) -> None:
        x[0][x[0] > 0.5] = 3.0
        x[1][x[0][0] > 0.5] = 4.0

    x, expected = tensors(1), tensors(1)
    x[1], expected[1] = torch.ones(3, 2), torch.ones(3, 2)
    run(write, x, tensors(1))
    write(expected, tensors(1))
    torch.testing.assert_close(x, expected)
