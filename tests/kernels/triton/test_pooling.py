"""Pooling by Triton kernels, interpreted, beside eager."""

from __future__ import annotations

from tests.kernels.triton import interpreted  # isort: skip - it has to come before triton

import pytest
import torch

import fusewright
from tests.lower.test_pooling import FUNCTIONS, images, tensors


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_are_as_eager(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = fusewright.compile(function, backend=interpreted.NAME)
    batches = [images(7, 13)]
    if "volumes" not in name:
        batches.append(images(7, 13).to(memory_format=torch.channels_last))
    for x in batches:
        for ours, eager in zip(tensors(compiled(x)), tensors(function(x)), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-6, atol=0, equal_nan=True)
            assert ours.stride() == eager.stride()
