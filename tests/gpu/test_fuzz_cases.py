"""Programs that the fuzzer found on a GPU, each of which was compiled wrongly there once:
`fuzz_cases/*.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fusewright.fuzz.checking import Way, check
from fusewright.fuzz.program import read_program
from tests.gpu.support import needs_gpu

CASES = sorted((Path(__file__).parent / "fuzz_cases").glob("*.py"))


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=needs_gpu)], ids=["cpu", "cuda"]
)
def test_a_program_once_compiled_wrongly_is_eager(file: Path, device: str) -> None:
    verdict = check(read_program(file), way=Way(device=device))
    assert verdict.outcome in ("right", "same exception"), "\n".join(map(str, verdict.findings))


def test_there_are_cases() -> None:
    assert CASES
