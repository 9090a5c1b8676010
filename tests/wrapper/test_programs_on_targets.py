"""Programs of the whole suite on the targets that are not the default: a sample of those that were
compiled wrongly once, and of those of any size. `python -m pytest tests/end_to_end --target fx`
runs everything there on another, and `FUSEWRIGHT_TEST_ALL=1` the whole of this file.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusewright.config import TARGETS, Options
from fusewright.fuzz.checking import check
from fusewright.fuzz.program import read_program
from tests.end_to_end.sized_programs import PROGRAMS, complaints

CASES = sorted((Path(__file__).parents[1] / "end_to_end" / "fuzz_cases").glob("*.py"))
EVERY = {"python": 10, "fx": 10, "cpp": 50}
"""By target: of how many programs one is run. C++ is compiled for each graph, which takes seconds.
"""

EVERYTHING = os.environ.get("FUSEWRIGHT_TEST_ALL") == "1"


def sampled(names: list[str]) -> list[tuple[str, str]]:
    """Targets and names, each target with others."""
    return [
        (target, name)
        for first, (target, every) in enumerate(EVERY.items())
        for name in (names if EVERYTHING else names[first::every])
    ]


@pytest.fixture
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setenv("FUSEWRIGHT_TARGET", name)
    assert Options.from_user({}).target == name
    return name


def test_each_target_has_its_turn() -> None:
    assert {*EVERY} == {*TARGETS} - {"native"}


@pytest.mark.parametrize(
    ("target", "name"), sampled([file.stem for file in CASES]), indirect=["target"]
)
def test_programs_once_compiled_wrongly(target: str, name: str) -> None:
    verdict = check(read_program(CASES[0].with_name(f"{name}.py")))
    assert verdict.outcome in ("right", "same exception"), "\n".join(map(str, verdict.findings))


@pytest.mark.parametrize(("target", "name"), sampled([*PROGRAMS]), indirect=["target"])
def test_programs_of_any_size(target: str, name: str) -> None:
    program = PROGRAMS[name]
    trained = not program.writes
    assert not list(complaints(program, "rows", trained=trained, count=3))
