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
from tests.lower.test_half_types import NUMBERS

pytestmark = needs_gpu


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_at_most_those_of_eager(name: str, dtype: torch.dtype) -> None:
    x = numbers(dtype).to(CUDA)
    x = x[x.isfinite()]
    function = FUNCTIONS[name].function
    compiled = fusewright.compile(function, fullgraph=True, options={"strict": True})
    assert not places_farther_than_eager(name, compiled, x)[:8]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_compared_as_eager_rounds_them(name: str, dtype: torch.dtype) -> None:
    compiled = fusewright.compile(NUMBERS[name], options={"strict": True})
    near = torch.tensor([0.1, -0.1], dtype=dtype)
    x = torch.cat([near, near.nextafter(2 * near), near.nextafter(0 * near)]).to(CUDA)
    x = x[:, None].expand(-1, 3)
    torch.testing.assert_close(compiled(x, 0.1), NUMBERS[name](x, 0.1), rtol=0, atol=0)
