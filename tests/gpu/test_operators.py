"""Samples of operators on a GPU: compiled, they give what eager gives there. All of them:
`python -m tests.operators.walk --device cuda`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.lower.rules import words
from tests.gpu.support import needs_gpu
from tests.operators.walk import Setting, operators, walk

pytestmark = needs_gpu

NAMES = words(
    """
    add addcmul amax argmax cat clamp copysign cumsum div embedding exp floor_divide gather
    index_select logsumexp masked_fill matmul max mean nn.functional.batch_norm nn.functional.conv2d
    nn.functional.embedding nn.functional.gelu nn.functional.group_norm nn.functional.layer_norm
    nn.functional.pad nn.functional.softplus pow prod remainder roll softmax std tanh tril unfold
    var_mean where
    """
)
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)

CASES = [
    pytest.param(info, dtype, id=f"{info.name}-{str(dtype).removeprefix('torch.')}")
    for info in operators(NAMES)
    for dtype in TYPES
    if dtype in info.supported_dtypes("cuda")
]


@pytest.mark.parametrize(("info", "dtype"), CASES)
def test_compiled_operator_equals_eager(info: Any, dtype: torch.dtype) -> None:
    outcome = walk(info, dtype, {"machine code": 2}, Setting("cuda"))
    assert not outcome.failures, outcome.failures[0]
