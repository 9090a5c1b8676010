"""What explain and the report tell of kernels that are chosen by measuring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright.runtime import choices
from tests.threads import with_threads

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(choices, "time_runs", lambda runs, device: [3e-6, 2e-6, 4e-6][: len(runs)])
    with with_threads(2):  # How many there are decides which ways there are.
        yield


def row_sums(x: Tensor) -> Tensor:
    return x.sum(-1) * 2


def explained(**options: Any) -> Any:
    compiled = fusewright.compile(row_sums, options=options)
    return fusewright.explain(compiled)(torch.randn(3, 8192))


def test_explain_tells_of_them() -> None:
    explanation = explained()
    (choice,) = explanation.choices
    assert choice.alternatives == ("whole", "split")
    assert "split 2.0 µs, whole 3.0 µs   aten.sum.dim_IntList at test_choices.py:" in str(
        explanation
    )
    assert f"{Path(__file__).name}" in str(choice)
    assert "(timed by an earlier process)" in str(explained())
    assert "whole, as an option says" in str(explained(multi_kernel="0"))
    assert "chosen by measuring" not in str(explained(multi_kernel="off"))


def test_before_the_first_call() -> None:
    compiled = fusewright.compile(row_sums)
    fusewright.compile(row_sums)
    compiled(torch.randn(3, 8192))
    (compilation,) = fusewright.api.compilations(compiled)
    compilation.compiled.record.choices[0].decisions.clear()  # type: ignore[attr-defined]
    assert "whole or split, to be timed at the first call" in str(
        fusewright.inspect.choices.choice_reports([compilation])[0]
    )


def test_the_report_shows_them(tmp_path: Path) -> None:
    """Both where the choice is in the code, and where it was filled in; times are those of what
    runs.
    """
    for number in range(2):
        page = tmp_path / f"page{number}.html"
        explained().to_html(page, time=True)
        text = page.read_text()
        assert "Chosen by measuring: cpu_sum_mul_choice_" in text and "split 2.0 µs" in text
