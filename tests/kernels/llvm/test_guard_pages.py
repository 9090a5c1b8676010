"""A sample of the kernels that run between guard pages by command (`guard_pages.py`)."""

from __future__ import annotations

import warnings

import pytest

from tests.kernels.llvm.guard_pages import TARGETS, Report, cases


@pytest.mark.parametrize(("kind", "part"), [("sizes", 61), ("operators", 61), ("models", 100)])
def test_no_kernel_touches_what_lies_outside(kind: str, part: int) -> None:
    report = Report()
    warnings.simplefilter("ignore")
    for case in [*cases([kind], TARGETS)][::part]:
        report.add(case)
    assert not report.complaints
    assert report.launches
