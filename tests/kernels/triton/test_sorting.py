"""Sorting short rows, and picking from them, by Triton kernels, interpreted, beside eager."""

from __future__ import annotations

from tests.kernels.triton import interpreted  # isort: skip - it has to come before triton

import pytest
import torch

import fusewright
from fusewright.lower import sorting
from tests.lower.test_sorting import PICKING, holes


@pytest.mark.parametrize("name", PICKING)
def test_kernels_are_as_eager(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sorting, "ORDERS_EQUALS", frozenset())
    function = PICKING[name]
    options = {"strict": True}
    compiled = fusewright.compile(function, backend=interpreted.NAME, options=options)
    for x, dim in [(holes((5, 17), torch.float32), 1), (holes((6, 9), torch.bfloat16), 0)]:
        values, indices = compiled(x, dim)
        wanted = function(x, dim)[0]
        torch.testing.assert_close(values, wanted, rtol=0, atol=0, equal_nan=True)
        assert values.stride() == wanted.stride()
        if values.dim() < x.dim():
            values, indices = values.unsqueeze(dim), indices.unsqueeze(dim)
        found = x.gather(dim, indices)
        torch.testing.assert_close(found, values, rtol=0, atol=0, equal_nan=True)
