"""Every kind of body as Triton: its source, and its results in the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.interpreter import run_program

from fusewright.ir.group import Group  # isort: skip
from tests.golden import Case, golden  # isort: skip
from tests.kernels.triton import agreement  # isort: skip
from tests.kernels.triton.launching import scheduled, write_group  # isort: skip


def sources(text: str, persistent: bool | None = None) -> list[str]:
    """The kernels of a program. `persistent` False: rows are walked even where one block fits."""
    groups = [step for step in scheduled(text).works if isinstance(step, Group)]
    return [write_group(group, persistent).source for group in groups]


@golden("cases/sources.txt")
def test_source(text: str) -> str:
    return "\n".join(sources(text))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", agreement.RUN_CASES, ids=lambda case: case.name)
def test_results(case: Case, tmp_path: Path) -> None:
    agreement.check_case(run_program, case, tmp_path, persistent=None)
    if sources(case.input, persistent=False) != sources(case.input):
        agreement.check_case(run_program, case, tmp_path, persistent=False)


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("persistent", [True, False])
def test_nan_wins(kind: str, persistent: bool, tmp_path: Path) -> None:
    agreement.check_nan(run_program, kind, tmp_path, persistent)


def test_an_index_out_of_range_stops_the_kernel(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="out of range"):
        agreement.embedding_out_of_range(run_program, tmp_path)
