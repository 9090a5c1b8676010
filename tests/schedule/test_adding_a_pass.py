"""docs/adding-a-pass.md: the commit that it shows, performed; and its other case."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given

from fusewright import optimizer
from fusewright.context import CompileContext
from fusewright.ir.parse import parse_program
from fusewright.ir.program import Program
from fusewright.schedule import PASSES, schedule
from tests.golden import Case, read_cases
from tests.schedule.programs import programs
from tests.schedule.test_equivalence import assert_equivalent, relaxed
from tests.schedule.test_passes import CASES, parts_of, text_after

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-pass.md").read_text()
SHARE = "src/fusewright/schedule/share.py"
SCHEDULE = "src/fusewright/schedule/schedule.py"


def files_of_the_commit() -> dict[str, str]:
    """Each file that the page's commit changes, with its text afterwards."""
    (diff,) = re.findall(r"```diff\n(.*?)```", PAGE, flags=re.S)
    files: dict[str, str] = {}
    for change in diff.removeprefix("--- ").split("\n--- "):
        name, *hunks = re.split(r"\n@@$", change, flags=re.M)
        path = ROOT / name
        text = path.read_text() if path.exists() else ""
        for hunk in hunks:
            rows = hunk[1:].rstrip("\n").split("\n")
            before = "".join(f"{row[1:]}\n" for row in rows if row[0] in " -")
            after = "".join(f"{row[1:]}\n" for row in rows if row[0] in " +")
            assert not before or text.count(before) == 1, before
            text = text.replace(before, after) if before else f"{text}\n{after}".lstrip("\n")
        files[name] = text
    return files


COMMIT = files_of_the_commit()


@pytest.fixture(scope="module")
def committed() -> Iterator[ModuleType]:
    """The module with the order of passes, as the commit leaves it; the command uses it."""
    with pytest.MonkeyPatch.context() as patch:
        for path in (SHARE, SCHEDULE):
            name = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
            module = ModuleType(name)
            patch.setitem(sys.modules, name, module)
            exec(compile(COMMIT[path], path, "exec"), vars(module))
        for name, value in vars(module).items():
            if name in vars(optimizer) and not name.startswith("__"):
                patch.setattr(optimizer, name, value)
        yield module


def case_of(text: str, tmp_path: Path, name: str) -> Case:
    (tmp_path / "cases.txt").write_text(text)
    return next(case for case in read_cases(tmp_path / "cases.txt") if case.name == name)


def test_it_is_one_file_its_row_and_a_case() -> None:
    assert [*COMMIT] == [SHARE, SCHEDULE, str(CASES.relative_to(ROOT))]
    assert not (ROOT / SHARE).exists() and "share" not in PASSES


def test_its_case_passes(committed: ModuleType, tmp_path: Path) -> None:
    case = case_of(COMMIT[str(CASES.relative_to(ROOT))], tmp_path, "equal statements")
    assert text_after(*parts_of(case.input)) == case.expected
    assert case.input.partition("\n")[2] != case.expected


@given(program=programs())
@relaxed
def test_it_computes_the_same(committed: Any, program: Program) -> None:
    planned = committed.schedule(program, CompileContext())
    assert_equivalent(program, planned)


def test_it_saves_a_kernel(committed: ModuleType, tmp_path: Path) -> None:
    case = case_of(COMMIT[str(CASES.relative_to(ROOT))], tmp_path, "equal statements")
    program = parse_program(parts_of(case.input)[1])
    before = schedule(program, CompileContext(), passes=["dead-code"])
    after = committed.schedule(program, CompileContext(), passes=["share", "dead-code"])
    assert (len(before.steps), len(after.steps)) == (3, 2)


def test_the_other_case(tmp_path: Path) -> None:
    (text,) = re.findall(r"```\n(=== .*?)```", PAGE, flags=re.S)
    case = case_of(text, tmp_path, "two nests over equal loops")
    assert text_after(*parts_of(case.input)) == case.expected
