"""The benchmark of matrix products computes them, and tells where a choice is slow or inexact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.products import SHAPES, Row, Shape, kernel_of, main, table


def test_there_are_sixty_shapes() -> None:
    assert len(SHAPES) >= 60


@pytest.mark.parametrize("layout", ["linear", "plain", "turned"])
@pytest.mark.parametrize("batches", [0, 3])
def test_kernels_compute_the_product(layout: str, batches: int) -> None:
    left, right = Shape("small", 5, 7, 9, layout, batches).operands()
    result = torch.empty(*left.shape[:-1], 7)
    kernel_of(left, right)(result)
    torch.testing.assert_close(result, left @ right)


def test_a_slow_or_inexact_choice_is_bad() -> None:
    shape = Shape("small", 5, 7, 9)
    assert not Row(shape, library=1.0, kernel=1.04, choice="kernel", error=1.0).is_bad
    assert Row(shape, library=1.0, kernel=1.1, choice="kernel", error=1.0).is_bad
    assert Row(shape, library=1.0, kernel=0.5, choice="kernel", error=1.1).is_bad
    assert not Row(shape, library=1.0, kernel=1.1, choice="library", error=1.0).is_bad
    assert table([Row(shape, library=1.0, kernel=0.5, choice="kernel", error=1.0)]).row_count == 1


def test_a_tiny_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "products.json"
    assert main(["--shapes", "tiny", "--seconds", "0.01", "--json", str(file)]) in (0, 1)
    assert "GFLOP/s" in capsys.readouterr().out and file.exists()
