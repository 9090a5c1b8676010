"""The catalogue of graph breaks: each reason is provoked by a program, names its line, and is
documented as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest
import torch

import fusewright
from fusewright.capture import reasons
from fusewright.errors import Unsupported
from fusewright.events import GraphBreak
from tests.golden import Case, read_cases, write_expected
from tools import graph_breaks_page

CASES = {case.name: case for case in read_cases(graph_breaks_page.CASES)}
REASONS = {reason.name: reason for reason in graph_breaks_page.catalogue()}
SOURCE = Path(fusewright.__file__).parent
X = torch.arange(6.0).reshape(2, 3) - 1


@pytest.mark.golden
@pytest.mark.parametrize("name", REASONS)
def test_a_program_provokes_it(name: str, tmp_path: Path, bless: bool) -> None:
    case = CASES[name]
    error = provoke(case, tmp_path)
    assert error.reason == name
    assert error.location is not None and error.location.file == str(tmp_path / "program.py")
    assert 1 <= error.location.line <= case.input.count("\n")
    assert error.remedy == REASONS[name].remedy
    text = str(error).replace(f"{tmp_path}{os.sep}", "")
    text = re.sub(r"object at 0x[0-9a-f]+", "object", text) + "\n"
    if bless and text != case.expected:
        write_expected(case, text)
        return
    assert text == case.expected, "if this is meant: python -m tests.bless"


def provoke(case: Case, folder: Path) -> Unsupported:
    """The error that a case's program raises under `fullgraph`; `around`, if it has one, is entered
    around the call, and `caller` calls in place of the test. Where it has `CALLS`, arguments for
    one call after another, the break that comes last without `fullgraph`.
    """
    path = folder / "program.py"
    path.write_text(case.input)
    variables = {"torch": torch, "fusewright": fusewright}
    exec(compile(case.input, str(path), "exec"), variables)
    if "CALLS" in variables:
        compiled = fusewright.compile(variables["f"], backend="eager")
        for arguments in variables["CALLS"]:
            compiled(X, *arguments)
        found = [one for one in compiled.compiler.events if isinstance(one, GraphBreak)][-1]
        return Unsupported(found.what, found.location, found.remedy, found.reason)
    around = variables.get("around", contextlib.nullcontext())
    with pytest.raises(Unsupported) as raised, around:
        compiled = fusewright.compile(variables["f"], backend="eager", fullgraph=True)
        variables.get("caller", lambda function: function)(compiled)(X)
    return raised.value


def test_every_program_belongs_to_a_reason() -> None:
    assert set(CASES) == set(REASONS)


def test_every_reason_is_given_somewhere() -> None:
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    for constant, reason in vars(reasons).items():
        if isinstance(reason, reasons.Reason):
            assert f"reasons.{constant}" in text, f"nothing raises {constant}"


def test_the_page_is_up_to_date(bless: bool) -> None:
    if bless:
        graph_breaks_page.PAGE.write_text(graph_breaks_page.page())
    command = "python -m tools.graph_breaks_page"
    assert graph_breaks_page.PAGE.read_text() == graph_breaks_page.page(), f"run {command}"
