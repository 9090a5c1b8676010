"""Resampling and its gradients by Triton kernels, interpreted, beside eager and float64."""

from __future__ import annotations

from tests.kernels.triton import interpreted  # isort: skip - it has to come before triton

import pytest

import fusewright
from fusewright.lower import resampling
from tests.lower.test_resampling import CASES, SAMPLE, assert_as_near_as_eager, data


@pytest.mark.parametrize("name", SAMPLE[3::5])
def test_kernels_are_as_near_as_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "runs_on_cpu", lambda call: False)
    count, function = CASES[name]
    compiled = fusewright.compile(function, backend=interpreted.NAME)
    for last in (False, True):
        assert_as_near_as_eager(compiled, function, data(count, last=last), 2e-7)
