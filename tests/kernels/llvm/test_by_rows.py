"""Reductions of rows that lie across memory, and scattered rows, which large ones walk over row by
row: small ones made to, between guard pages and in garbage.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fusewright.ir.limits import held_lines
from fusewright.kernels.llvm import plan
from fusewright.schedule import fusion, split
from tests.kernels.llvm.guard_pages import guarded, run_program


def reductions(x: Tensor) -> tuple[Tensor, ...]:
    """All kinds, of several stages, and of two dimensions of which one is a row."""
    wide = x.float()
    return (
        (x * x).sum(0),
        *(x.amax(0), x.argmin(0), (x > 1).any(0), x.clamp(0, 2).prod(0)),
        *torch.var_mean(wide, 0),
        wide - wide.mean(0),
        wide.softmax(0),
        x.expand(3, -1, -1).contiguous().float().mean(1) * 2,
        torch.zeros(7, x.shape[1]).index_add(0, wide.argmin(1) % 7, wide),
    )


@pytest.mark.parametrize("target", ["auto", "avx2", "neon"])
def test_small_ones(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walked = []

    def walks_rows(*args: Any) -> bool:
        walked.append(walks(*args))
        return walked[-1]

    walks = plan.walks_rows
    monkeypatch.setattr(plan, "walks_rows", walks_rows)
    for module in (plan, split, fusion):
        monkeypatch.setattr(module, "WALKED_ELEMENTS", 0)
    for module in (plan, split):
        monkeypatch.setattr(module, "HELD_ROWS", 0)
    monkeypatch.setattr(split, "ROWS_OF_CHUNK", 2)
    generator = torch.Generator().manual_seed(0)
    with guarded(target):
        for rows, columns, dtype in (
            (3, 17, torch.float32),
            (150, 170, torch.float32),
            (9, 300, torch.bfloat16),
            (5, 2500, torch.float32),  # more than are gone through at once
        ):
            x = (torch.randn(rows, columns, generator=generator) * 4).to(dtype)
            run_program(reductions, x, target)
    assert sum(walked) >= 44  # eleven of each


def test_rows_a_power_of_two_apart_share_few_sets_of_a_cache() -> None:
    assert held_lines(8192) == 128
    assert held_lines(9216) == 1024
    assert held_lines(2048 * 64) == 8
    assert held_lines(100) > 1024
