"""Frozen inference on a GPU: batch norms folded, channels last in half precision, weights that
change, and graphs that are replayed.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import fusewright
from tests.gpu.support import CUDA, needs_gpu
from tests.relative_error import relative_error

pytestmark = needs_gpu


def images() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 16, 5),
    )
    with torch.no_grad():
        for _ in range(2):
            model(torch.randn(8, 3, 12, 12))
    return model.to(CUDA).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_model(dtype: torch.dtype, mode: str) -> None:
    model = images().to(dtype)
    options: dict[str, Any] = {"freeze": True, "verify": True}
    compiled = fusewright.compile(model, mode=mode, options=options)
    with torch.no_grad():
        for step in range(6):
            if step == 3:
                model[0].weight.mul_(1.5)
            x = torch.randn(4, 3, 12, 12, device=CUDA, dtype=dtype)
            exact = copy.deepcopy(model).double()(x.double())
            expected = relative_error(model(x), exact)
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda.synchronize()
                result = compiled(x)
                torch.cuda.synchronize()
            assert relative_error(result, exact) <= 4 * expected + torch.finfo(dtype).eps
