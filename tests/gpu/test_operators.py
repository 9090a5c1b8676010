"""Samples of operators on a GPU: compiled, they give what eager gives there. All of them:
`python -m tests.operators.walk --device cuda`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.gpu.support import needs_gpu
from tests.operators.test_walk import COMPILED
from tests.operators.walk import Setting, operators, walk

pytestmark = needs_gpu

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)

CASES = [
    pytest.param(info, dtype, id=f"{info.name}-{str(dtype).removeprefix('torch.')}")
    for info in operators(COMPILED)
    for dtype in TYPES
    if dtype in info.supported_dtypes("cuda")
]


@pytest.mark.parametrize(("info", "dtype"), CASES)
def test_compiled_operator_equals_eager(info: Any, dtype: torch.dtype) -> None:
    outcome = walk(info, dtype, {"machine code": 2}, Setting("cuda"))
    assert not outcome.failures, outcome.failures[0]
