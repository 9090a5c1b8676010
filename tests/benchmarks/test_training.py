"""Errors of gradients, and the memory kept for backward, where one can count it by hand."""

from __future__ import annotations

import gc
import math
from typing import Any

import pytest
import torch

import fusewright
from benchmarks.compare import Row, _failed
from benchmarks.compilers import predicted_saved_bytes
from benchmarks.models import Perceptron
from benchmarks.report import summarise
from benchmarks.training import (
    SMALLEST_GRADIENT,
    Gradients,
    WithLoss,
    exact_gradients,
    gradient_error,
    gradients_of,
    saved_bytes,
)

WIDTH, HIDDEN, ROWS = 8, 16, 4


@pytest.fixture
def model() -> WithLoss:
    torch.manual_seed(0)
    return WithLoss(Perceptron(WIDTH, HIDDEN, depth=1))


@pytest.fixture
def inputs() -> dict[str, torch.Tensor]:
    return {"features": torch.randn(ROWS, WIDTH)}


def test_gradients_are_those_of_the_sum_of_squares(
    model: WithLoss, inputs: dict[str, torch.Tensor]
) -> None:
    for _ in range(2):  # nothing accumulates
        found = gradients_of(model, model, inputs)
    model.zero_grad()
    model.model(**inputs).square().sum().backward()
    for one, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)


def test_compiled_gradients_are_compared_with_float64(
    model: WithLoss, inputs: dict[str, torch.Tensor]
) -> None:
    expected = exact_gradients(model, inputs)
    assert all(one is not None and one.dtype == torch.float64 for one in expected)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    error = gradient_error(gradients_of(model, compiled, inputs), expected)
    assert 0 < error < 1e-5


def test_an_error_is_that_of_the_worst_gradient() -> None:
    exact: Gradients = [torch.tensor([3.0, 4.0]).double(), None, torch.ones(1).double()]
    near: list[Any] = [torch.tensor([3.0, 4.5]), None, torch.ones(1)]
    assert gradient_error(near, exact) == pytest.approx(0.1)
    assert gradient_error([near[0], near[0], near[2]], exact) == math.inf
    assert gradient_error([None, None, near[2]], exact) == math.inf
    assert gradient_error([near[0] * math.nan, None, near[2]], exact) == math.inf


def test_a_gradient_of_rounding_errors_is_compared_with_all_gradients() -> None:
    exact: Gradients = [torch.ones(1).double(), torch.full((1,), 1e-17).double()]
    found: Gradients = [torch.ones(1), torch.full((1,), SMALLEST_GRADIENT / 100)]
    assert gradient_error(found, exact) == pytest.approx(0.01)


def test_saved_bytes_count_shared_memory_once_and_inputs_never() -> None:
    module = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def call(input: torch.Tensor) -> torch.Tensor:
        root = module(input).exp()  # saves the product's inputs, and its own result
        return (root * root).sum()  # saves that result twice again

    assert saved_bytes(module, call, {"input": torch.randn(ROWS, WIDTH)}) == ROWS * WIDTH * 4


def test_saved_bytes_are_predicted(model: WithLoss, inputs: dict[str, torch.Tensor]) -> None:
    gc.collect()  # graphs of earlier tests
    before = predicted_saved_bytes()
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    compiled(**inputs)
    predicted = predicted_saved_bytes() - before
    assert predicted > 0
    assert saved_bytes(model, compiled, inputs) == pytest.approx(predicted, rel=0.05)


def test_a_row_of_training() -> None:
    columns: dict[str, dict[str, Any]] = {
        "torch.compile": {"saved": 100},
        "fusewright": {"saved": 50, "error": 5e-4, "allowed_error": 1e-3},
    }
    row = Row("a", "own", columns, dropout="off")
    assert row.title == "a, dropout off"
    assert row.measurement("cold", "eager") == ["cold-step", "eager", "own", "a", "off"]
    assert not _failed(row)
    summary = summarise([row])
    assert summary.saved_of_peer == summary.most_saved_of_peer == pytest.approx(0.5)
    columns["fusewright"]["error"] = 2e-3
    assert _failed(row)
