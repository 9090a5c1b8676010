"""The benchmark's models compiled for a GPU: results and gradients are as near to those in float64
as eager's are.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

import fusewright
from benchmarks import models
from benchmarks.measure import relative_error
from benchmarks.training import WithLoss, weighted_mean
from tests.gpu.support import CUDA, needs_gpu

pytestmark = [*needs_gpu, pytest.mark.timeout(600)]

LEAST = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
"""Relative errors that any order of summation may have."""


def built(name: str, dtype: torch.dtype) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A model and its inputs on the GPU."""
    module, inputs = models.build(name)
    return module.to(CUDA, dtype), {
        key: value.to(CUDA, dtype if value.is_floating_point() else None)
        for key, value in inputs.items()
    }


def widened(
    module: torch.nn.Module, inputs: dict[str, torch.Tensor]
) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The same model and inputs in float64."""
    wide = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    return copy.deepcopy(module).double(), wide


def error_of(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    error = relative_error(found, exact)
    assert not math.isnan(error)
    return error


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", models.MODELS)
def test_inference(name: str, dtype: torch.dtype) -> None:
    module, inputs = built(name, dtype)
    wide, wide_inputs = widened(module, inputs)
    with torch.no_grad():
        exact = models.tensors_of(wide(**wide_inputs))
        del wide
        eager = models.tensors_of(module(**inputs))
        compiled = fusewright.compile(module, fullgraph=True, options={"strict": True})
        for _ in range(2):
            found = models.tensors_of(compiled(**inputs))
    assert [one.dtype for one in found] == [one.dtype for one in eager]
    assert error_of(found, exact) <= max(LEAST[dtype], 1.5 * error_of(eager, exact))


@pytest.mark.parametrize("name", models.MODELS)
def test_a_training_step(name: str) -> None:
    module, inputs = built(name, torch.float32)
    wide, wide_inputs = widened(module, inputs)
    exact = gradients(wide, wide, wide_inputs)
    del wide
    eager = gradients(module, module, inputs)
    compiled = fusewright.compile(
        WithLoss(module, weighted_mean), fullgraph=True, options={"strict": True}
    )
    for _ in range(2):
        found = gradients(module, compiled, inputs)
    largest = max(float(one.norm()) for one in exact)
    for mine, theirs, true in zip(found, eager, exact, strict=True):
        least = 1e-3 * float(true.norm()) + 1e-6 * largest
        assert float((mine - true).norm()) <= max(least, 2 * float((theirs - true).norm()))


def gradients(module: torch.nn.Module, call: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """Of the parameters, in float64, after one step."""
    if call is module:
        call = WithLoss(module, weighted_mean)
    module.zero_grad(set_to_none=True)
    call(**inputs).backward()
    return [p.grad.double() for p in module.parameters() if p.grad is not None]
