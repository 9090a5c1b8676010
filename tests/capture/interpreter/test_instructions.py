"""Every instruction has a handler or a reason; programs are interpreted as CPython runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fusewright.capture.bytecode.operations import OPERATIONS
from fusewright.capture.interpreter.instructions import OPCODES
from tests.capture.bytecode.test_round_trip import OTHER_PYTHONS
from tests.capture.interpreter import differential
from tests.capture.interpreter.programs_control import PROGRAMS

REPOSITORY = Path(__file__).parents[3]


def test_every_instruction_is_interpreted_or_refused_with_a_reason() -> None:
    assert differential.unknown_instructions() == []
    refused = {name: row.refusal for name, row in OPERATIONS.items() if row.refusal}
    assert all(reason[-1] != "." for reason in refused.values())
    assert not OPCODES.keys() & refused.keys()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_interpreted_as_it_runs(name: str) -> None:
    function = PROGRAMS[name]
    assert differential.interpreted(function) == differential.executed(function)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in differential.NOT_BROKEN])
def test_a_program_may_break_anywhere(name: str) -> None:
    function = PROGRAMS[name]
    expected = differential.executed(function)
    for step in differential.STEPS:
        found, _ = differential.broken(function, step)
        assert found == expected


@pytest.mark.thorough
@pytest.mark.skipif(not OTHER_PYTHONS, reason="no interpreter of another supported version found")
@pytest.mark.parametrize("python", OTHER_PYTHONS)
def test_programs_are_interpreted_on_another_version(python: str) -> None:
    script = Path(__file__).with_name("without_torch.py")
    command = [python, "-I", "-B", str(script), str(REPOSITORY)]
    finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=250)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert result.pop("breaks") > 500
    assert result == {"different": {}, "count": len(PROGRAMS), "unknown": []}
    assert python != sys.executable
