"""Samples of some operators compiled to machine code; all of them: `python -m
tests.end_to_end.operators`.
"""

from __future__ import annotations

import pytest
import torch

from fusewright.lower.rules import words
from tests.end_to_end.operators import try_operator
from tests.lower.operator_samples import database

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
    for info in database()
    if info.name in NAMES
    for dtype in TYPES
    if dtype in info.dtypes
]


@pytest.mark.parametrize(("info", "dtype"), CASES)
def test_compiled_operator_equals_eager(info: object, dtype: torch.dtype) -> None:
    with torch.no_grad():
        outcome = try_operator(info, dtype, 2 if dtype is torch.float32 else 1)
    assert not outcome.failures, outcome.failures[0]


@pytest.mark.parametrize(
    "info",
    [
        pytest.param(info, id=info.name)
        for info in database()
        if info.name in NAMES and torch.float32 in info.dtypes
    ],
)
def test_compiled_operator_of_symbolic_sizes_equals_eager(info: object) -> None:
    with torch.no_grad():
        outcome = try_operator(info, torch.float32, 2, dynamic=True)
    assert not outcome.failures, outcome.failures[0]
