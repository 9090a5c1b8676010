"""What log_softmax is taken apart into on a GPU is eager's."""

from __future__ import annotations

import pytest
import torch

from fusewright.formulas.losses import log_softmax, log_softmax_of


@pytest.mark.parametrize("dim", [0, -1])
def test_special_values(dim: int) -> None:
    x = torch.randn(6, 6, dtype=torch.float64)
    x[1, 2], x[2, 3], x[3] = float("inf"), float("nan"), float("-inf")
    x[4, :5], x[5, 0] = float("-inf"), 1e300
    torch.testing.assert_close(log_softmax_of(x, dim), x.log_softmax(dim), equal_nan=True)


def test_what_eager_lays_out_anew_is_left_to_lowering() -> None:
    x = torch.empty(4, 6, device="meta")
    assert log_softmax(x, -1, False) is not NotImplemented
    assert log_softmax(x.t(), -1, False) is NotImplemented
    assert log_softmax(x[:0], -1, False) is NotImplemented
    assert log_softmax(torch.ones(4, 6), -1, False) is NotImplemented
