"""Random programs with graph breaks do what they do uncompiled: results, exceptions, lines,
output, and what is left in objects.

Thousands run by `python -m tests.capture.soundness.breaks`.
"""

from __future__ import annotations

import pytest

from tests.capture.soundness.breaks import disagreement
from tests.capture.soundness.programs import Generator

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_agrees(seed: int) -> None:
    program = Generator(seed).program()
    found = disagreement(program, f"program {seed}")
    assert found is None, f"{found}\n{program.source}"
