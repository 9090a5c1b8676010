"""docs/adding-a-pass.md: its example, followed word for word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from fusewright import optimizer
from fusewright.context import CompileContext
from fusewright.ir.program import Program
from fusewright.passes import Pass
from fusewright.schedule import PASSES, schedule
from fusewright.schedule.schedule import PROGRAM_PASSES
from tests.golden import Case, read_cases
from tests.schedule.programs import programs
from tests.schedule.test_equivalence import assert_equivalent, relaxed
from tests.schedule.test_passes import parts_of, steps_after

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-pass.md"
STAGE = schedule.__globals__
"""Variables of the module in which the tuples stand."""


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """The golden case that the page shows."""
    (text,) = re.findall(r"```\n(=== .*?)```", PAGE.read_text(), flags=re.S)
    (tmp_path / "case.txt").write_text(text)
    (case,) = read_cases(tmp_path / "case.txt")
    return case


@pytest.fixture(scope="module")
def share() -> Any:
    """The function that the page writes."""
    text, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    variables: dict[str, Any] = {}
    exec(compile(text, str(PAGE), "exec"), variables)
    return variables["share"]


@pytest.fixture
def added(share: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler with the page's row."""
    _, row = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    variables = {"Pass": Pass, "share": share, "PROGRAM_PASSES": PROGRAM_PASSES}
    exec(compile(row, str(PAGE), "exec"), variables)
    monkeypatch.setitem(STAGE, "PROGRAM_PASSES", variables["PROGRAM_PASSES"])
    monkeypatch.setattr(optimizer, "PASSES", ("share", *PASSES))


@pytest.mark.usefixtures("added")
def test_its_case_passes(case: Case) -> None:
    assert steps_after(*parts_of(case.input)) == case.expected


def test_without_it_there_is_another_kernel(case: Case) -> None:
    names, program = case.input.partition("pass ")[2].partition("\n")[::2]
    assert names == "share, dead-code"
    assert steps_after(("dead-code",), program).count("group exp") == 2


@given(program=programs())
@relaxed
def test_it_computes_the_same(share: Any, program: Program) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STAGE, "PROGRAM_PASSES", (Pass("share", share), *PROGRAM_PASSES))
        planned = schedule(program, CompileContext(), passes=("share", *PASSES))
    assert_equivalent(program, planned)
