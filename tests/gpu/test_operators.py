"""Samples of operators on a GPU: compiled, they give what eager gives there. All of them:
`python -m tests.end_to_end.operators --device cuda`.
"""

from __future__ import annotations

import pytest
import torch

from tests.end_to_end.operators import try_operator
from tests.end_to_end.test_operators import NAMES, TYPES
from tests.gpu.support import needs_gpu
from tests.lower.operator_samples import database

pytestmark = needs_gpu

CASES = [
    pytest.param(info, dtype, id=f"{info.name}-{str(dtype).removeprefix('torch.')}")
    for info in database()
    if info.name in NAMES
    for dtype in TYPES
    if dtype in info.supported_dtypes("cuda")
]


@pytest.mark.parametrize(("info", "dtype"), CASES)
def test_compiled_operator_equals_eager(info: object, dtype: torch.dtype) -> None:
    with torch.no_grad():
        outcome = try_operator(info, dtype, 2, device="cuda")
    assert not outcome.failures, outcome.failures[0]
