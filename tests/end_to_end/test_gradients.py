"""Gradients of some operators on torch's samples.

Of all: `python -m tests.end_to_end.gradients`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.lower.rules import words
from tests.end_to_end.gradients import SWEEPS, differentiable, dtypes_of, name_of, try_operator

NAMES = words(
    """
    addmm amax atan2 cat cdist clamp cummax cumprod cumsum diagonal_scatter dot fft.rfftn gather
    index_put index_select linalg.solve linalg.svd logcumsumexp logsumexp matmul
    max.reduction_with_dim nn.functional.batch_norm nn.functional.conv2d
    nn.functional.cross_entropy nn.functional.dropout nn.functional.embedding
    nn.functional.gelu nn.functional.grid_sample nn.functional.group_norm
    nn.functional.interpolate.bilinear nn.functional.layer_norm nn.functional.max_pool2d
    nn.functional.multi_margin_loss nn.functional.pad.reflect
    nn.functional.scaled_dot_product_attention norm prod scatter_reduce.amax softmax sort tril
    unbind var_mean view_as_complex view_as_real where
    """
)
COMPLEX = words("addmm dot linalg.svd matmul prod view_as_real")
"""Compared on complex numbers too."""

CASES = [
    pytest.param(info, dtype, id=f"{name_of(info)}-{str(dtype).removeprefix('torch.')}")
    for info in differentiable()
    if name_of(info) in NAMES
    for dtype in dtypes_of(info)
    if dtype is torch.float32 or (dtype.is_complex and name_of(info) in COMPLEX)
]


@pytest.mark.parametrize(("info", "dtype"), CASES)
def test_gradients_are_those_of_eager(info: Any, dtype: torch.dtype) -> None:
    ways = {way: SWEEPS[way][way] for way in ("aot_eager", "fusewright")}
    outcomes = try_operator(info, dtype, 2, ways)
    assert outcomes == {way: ["passes", ""] for way in ways}


def test_every_name_is_one_of_the_database() -> None:
    assert set(NAMES) <= {name_of(info) for info in differentiable()}
