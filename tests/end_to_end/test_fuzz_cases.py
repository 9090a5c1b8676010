"""Programs that the fuzzer found, each of which was compiled wrongly once: `fuzz_cases/*.py`.

A case is added by copying the file that `fusewright fuzz --resume DIR` has written to the folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fusewright.fuzz.checking import check
from fusewright.fuzz.program import read_program

CASES = sorted((Path(__file__).parent / "fuzz_cases").glob("*.py"))


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_a_program_once_compiled_wrongly_is_eager(file: Path) -> None:
    verdict = check(read_program(file))
    assert verdict.outcome in ("right", "same exception"), "\n".join(map(str, verdict.findings))


def test_there_are_cases() -> None:
    assert CASES
