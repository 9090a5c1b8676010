"""On a GPU: functions of half types, and their gradients, at each number of the type. Kernels
compute them by approximations, which may be off from exact ones by a small part of a unit more than
eager's kernels are.
"""

from __future__ import annotations

import pytest
import torch

import fusewright
from tests.gpu.support import CUDA, needs_gpu
from tests.half_types import FUNCTIONS, HALVES, numbers, places_farther_than_eager

pytestmark = needs_gpu


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_at_most_those_of_eager(name: str, dtype: torch.dtype) -> None:
    x = numbers(dtype).to(CUDA)
    x = x[x.isfinite()]
    function = FUNCTIONS[name].function
    compiled = fusewright.compile(function, fullgraph=True, options={"strict": True})
    assert not places_farther_than_eager(name, compiled, x)[:8]
