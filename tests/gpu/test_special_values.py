"""A sample of the sweep over special values, on a GPU: eager's kernels there treat NaN and zeros by
their own rules. All of it: `python -m tests.end_to_end.special_values --device cuda`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.lower.rules import words
from tests.end_to_end.special_values import cases, check, is_known
from tests.gpu.support import needs_gpu

pytestmark = needs_gpu

CHOSEN = {
    "logit eps",
    "x ** -1",
    *words(
        """
        F.elu F.hardshrink F.softshrink F.hardtanh F.relu6 F.hardswish F.leaky_relu F.softplus fmax
        fmin maximum minimum copysign min max argmax clamp normalize
        """
    ),
}
PAIRS = [
    (case, dtype)
    for case in cases()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.bool)
    if case.name in CHOSEN and dtype in case.dtypes and not is_known(case, dtype, "cuda")
]


@pytest.mark.parametrize(
    ("case", "dtype"), PAIRS, ids=[f"{case.name} {str(dtype)[6:]}" for case, dtype in PAIRS]
)
def test_special_values_are_as_in_eager(case: Any, dtype: torch.dtype) -> None:
    assert list(check(case, dtype, "cuda")) == []
