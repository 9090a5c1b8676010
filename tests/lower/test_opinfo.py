"""A fixed part of torch's operator samples through lowering; all of them: `python -m
tests.lower.operator_samples`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.lower.rules import words
from tests.lower.operator_samples import database, name_of, try_operator

LOOPS = words(
    """
    abs add addcdiv addcmul all amax amin any arange argmax argmin atan2 bitwise_and bitwise_not
    bitwise_or cat ceil clamp clone constant_pad_nd copysign cos diagonal div eq erf exp expand
    expm1 eye fill flip floor fmax fmin full_like gather ge gt hypot index_select isfinite isinf
    isnan le lerp log log1p log_softmax logaddexp logical_and logical_not logsumexp lt masked_fill
    max maximum mean min minimum mul ne neg nn.functional.celu nn.functional.elu
    nn.functional.embedding nn.functional.gelu nn.functional.glu nn.functional.group_norm
    nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh
    nn.functional.layer_norm nn.functional.leaky_relu nn.functional.mish nn.functional.pad
    nn.functional.relu nn.functional.rms_norm nn.functional.silu nn.functional.softplus permute pow
    prod reciprocal repeat reshape roll round rsqrt rsub select select_scatter sigmoid sign sin
    slice slice_scatter softmax sqrt square squeeze stack std std_mean sub sum tanh transpose tril
    triu trunc unbind unfold unsqueeze var var_mean view where xlogy zeros_like
    """
)
"""Operators of which every sample here must become loops alone: a lost rule fails the test."""

LIBRARY = words(
    """
    addmm bmm cumsum linalg.inv matmul nn.functional.avg_pool2d nn.functional.conv2d
    nn.functional.max_pool2d nn.functional.scaled_dot_product_attention sort topk scatter
    """
)

PARTLY = {
    "roll",
    "nn.functional.pad",
    "pow",
    "where",
    "amax",
    "index_select",
    "nn.functional.embedding",
}
"""Some samples (exotic modes, data-dependent sizes, integers that raise) stay with eager."""

TYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)


def find(name: str) -> Any:
    """The first of the database's operators called `name`, whatever its variant."""
    return next(info for info in database() if name in (info.name, name_of(info)))


def first_type(info: Any) -> torch.dtype:
    return next(dtype for dtype in TYPES if dtype in info.dtypes)


OTHER_TYPES = [
    (name, dtype)
    for name in LOOPS[::3]
    for dtype in TYPES
    if dtype in find(name).dtypes and dtype is not first_type(find(name))
]


@pytest.mark.parametrize("name", LOOPS)
def test_becomes_loops_and_equals_eager(name: str) -> None:
    info = find(name)
    outcome = try_operator(info, first_type(info), 4)
    assert not outcome.failures, outcome.failures[0]
    assert outcome.computed or outcome.status == "loops"
    if name not in PARTLY:
        assert not outcome.externs and not outcome.untraceable, outcome


@pytest.mark.parametrize("name", LIBRARY)
def test_library_calls_equal_eager(name: str) -> None:
    outcome = try_operator(find(name), torch.float32, 3)
    assert not outcome.failures, outcome.failures[0]
    assert outcome.externs


@pytest.mark.parametrize(("name", "dtype"), OTHER_TYPES, ids=str)
def test_other_types(name: str, dtype: torch.dtype) -> None:
    outcome = try_operator(find(name), dtype, 2)
    assert not outcome.failures, outcome.failures[0]
