"""A sample of the kernels that run between guard pages by command (`guard_pages.py`)."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.kernels.llvm.guard_pages import TARGETS, Report, cases, guarded, run_program


@pytest.mark.parametrize(("kind", "part"), [("sizes", 61), ("operators", 61), ("models", 100)])
def test_no_kernel_touches_what_lies_outside(kind: str, part: int) -> None:
    report = Report()
    warnings.simplefilter("ignore")
    for case in [*cases([kind], TARGETS)][::part]:
        report.add(case)
    assert not report.complaints
    assert report.launches


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("edge", [3, 4, 5, 6, 7])
def test_half_a_register_under_a_condition(target: str, edge: int) -> None:
    """Rows that end within the first half, of elements that are read where a condition holds."""
    x = torch.arange(4 * 4 * edge).view(4, 4, edge)
    with guarded(target):
        run_program(lambda x: torch.gradient(x, dim=(0, 1), edge_order=2), x, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_a_part_of_a_register_that_is_selected_by_its_own_mask(
    target: str, dtype: torch.dtype
) -> None:
    """Rows of two tensors, one below the other, whose elements are the lanes: of the second, the
    lanes before its first row are not to be touched.
    """
    with guarded(target):
        for rows in (1, 2, 3, 4, 5, 7):
            x = torch.ones(2, rows, dtype=dtype)
            run_program(lambda x: torch.cat([x.t().abs(), x.t()]).argmax(-1).sign(), x, target)
