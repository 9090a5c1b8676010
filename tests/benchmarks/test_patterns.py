"""The patterns run and differentiate; a wrong or failing compiler is told; bytes are counted."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks import patterns
from benchmarks.compilers import EAGER, OURS
from benchmarks.fused_patterns import PATTERNS

TOLERANCE = patterns.TOLERANCES[torch.float32]


def test_there_are_thirty_patterns() -> None:
    assert len(PATTERNS) == 30


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_has_a_result_and_gradients(name: str) -> None:
    mode = "step" if PATTERNS[name].has_gradient else "forward"
    inputs = [patterns.placed(value, "cpu", mode) for value in PATTERNS[name].make(2)]
    slope = patterns.slope_of(PATTERNS[name], inputs)
    run = patterns.stepped if mode == "step" else patterns.forward
    tensors = run(PATTERNS[name].function, inputs, slope)
    leaves = [value for value in inputs if value.requires_grad]
    assert [tensor.shape for tensor in tensors] == [slope.shape, *(leaf.shape for leaf in leaves)]


def test_the_least_bytes() -> None:
    x, scale = torch.zeros(4, 8, requires_grad=True), torch.zeros(8, requires_grad=True)
    assert patterns.least_bytes([x, scale], torch.zeros(4, 8), "forward") == 4 * (32 + 8 + 32)
    step = 4 * (32 + 8 + 32 + 32 + 32 + 8 + 32 + 8)
    assert patterns.least_bytes([x, scale], torch.zeros(4, 8), "step") == step


def test_a_row_of_eager_and_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "CPU_SECONDS", 0.0)
    row = patterns.measure("rms_norm", "step", [EAGER, OURS], "cpu", 4)
    assert not row.is_bad(TOLERANCE)
    assert all(column.seconds > 0 for column in row.columns)
    assert len(list(row.lines(1e9))) == 2


def test_a_wrong_result_and_a_failure_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "CPU_SECONDS", 0.0)
    monkeypatch.setattr(patterns, "compiled", lambda column, pattern: wrong)

    def wrong(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return PATTERNS["rms_norm"].function(x, scale) * 1.001

    assert patterns.measure("rms_norm", "forward", [OURS], "cpu", 4).is_bad(TOLERANCE)

    def fails(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(patterns, "compiled", lambda column, pattern: fails)
    row = patterns.measure("rms_norm", "forward", [OURS], "cpu", 4)
    assert row.is_bad(TOLERANCE) and row.columns[0].failure == "RuntimeError: no kernel"


def test_nan_is_no_agreement() -> None:
    x = torch.tensor([1.0, math.nan])
    assert patterns.relative_error([x], [torch.ones(2).double()]) == math.inf
