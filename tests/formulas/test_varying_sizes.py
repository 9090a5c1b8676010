"""Functions of torch whose C++ takes plain sizes in some version, written out for others."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import fusewright
from fusewright.formulas.varying_sizes import quantile
from fusewright.inspect.explanation import Explanation


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("q", "options"),
    [
        (0.1, {}),
        (0.5, {"dim": 0}),
        (1.0, {"dim": 1}),
        (0.0, {"dim": -1, "keepdim": True}),
        (0.37, {"dim": 0, "keepdim": True}),
        (0.9, {"keepdim": True}),
    ],
)
def test_quantile_is_torchs(dtype: torch.dtype, q: float, options: dict[str, Any]) -> None:
    x = torch.randn(7, 5, dtype=dtype)
    x[2, 3] = math.nan
    x[4, 1] = math.inf
    for value in (x, x.t(), x[:2], x[:, :1], x[4], x[0, 0]):
        if value.dim() < 2:
            options = {name: option for name, option in options.items() if name != "dim"}
        expected = torch.quantile(value, q, **options)
        given = quantile(value, q, **options)
        torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)
        assert given.shape == expected.shape


def test_quantile_leaves_what_it_does_not_cover() -> None:
    x = torch.ones(3)
    assert quantile(x, 0.5, interpolation="lower") is NotImplemented
    assert quantile(x, x) is NotImplemented
    assert quantile(x, 1.5) is NotImplemented
    assert quantile(x[:0], 0.5) is NotImplemented
    assert quantile(x.half(), 0.5) is NotImplemented


@pytest.mark.parametrize(
    "program", [lambda x: x.trace(), lambda x: torch.trace(x * 2), lambda x: x.quantile(0.3, 0)]
)
def test_one_graph_with_gradients(program: Any) -> None:
    explained = fusewright.explain(program, dynamic=True)
    for rows in (5, 6, 9):
        x = torch.rand(rows, rows + 2, requires_grad=True)
        explanation: Explanation = explained(x)
        (gradient,) = torch.autograd.grad(explanation.result.sum(), x)
        (expected,) = torch.autograd.grad(program(x).sum(), x)
        torch.testing.assert_close(gradient, expected)
    assert len(explanation.graphs) == 1
    assert not explanation.fallbacks


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("wrap", [False, True])
def test_a_diagonal_of_any_layout_is_filled(wrap: bool, dynamic: bool) -> None:
    memory = torch.arange(96.0)
    rows, cube = memory.reshape(8, 12), memory[:27].reshape(3, 3, 3).transpose(0, 1)
    for view in (rows[:5, ::2], rows.t(), rows[1:, 1:], cube, rows.reshape(48, 2), rows[::2, ::3]):

        def program(x: torch.Tensor) -> torch.Tensor:
            return x.fill_diagonal_(7, wrap) + (x * 2).fill_diagonal_(3)

        before = memory.clone()
        explained = fusewright.explain(program, dynamic=dynamic)
        explanation: Explanation = explained(view)
        given, memory_after = explanation.result, memory.clone()
        memory.copy_(before)
        assert torch.equal(given, program(view))
        assert torch.equal(memory_after, memory)
        assert not explanation.fallbacks and not explanation.breaks
