"""Every program of the corpus with every runner: interpreted, as one graph, with symbolic sizes,
with breaks at every instruction, in a world that changes; and on other versions of Python.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusewright import api
from fusewright.capture.bytecode.operations import OPERATIONS
from fusewright.capture.interpreter.instructions import OPCODES
from fusewright.errors import Unsupported
from tests.capture.bytecode.test_round_trip import OTHER_PYTHONS
from tests.programs import corpus, differential, runners
from tests.programs.corpus import Program

MODULES = ("expressions", "statements", "functions", "classes", "tensors", "library", "breaking")
for module in MODULES:
    importlib.import_module(f"tests.programs.{module}")

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = list(corpus.PROGRAMS.values())
CONSTANT = [program for program in PROGRAMS if program.needs_no_torch]
WHOLE = [program for program in PROGRAMS if not program.breaks]
BREAKING = [program for program in PROGRAMS if program.breaks]
MAY_BREAK = [program for program in PROGRAMS if program.name not in differential.NOT_BROKEN]


def of(programs: list[Program]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("program", programs, ids=str)


def test_every_instruction_is_interpreted_or_refused_with_a_reason() -> None:
    assert differential.unknown_instructions() == []
    refused = {name: row.refusal for name, row in OPERATIONS.items() if row.refusal}
    assert all(reason[-1] != "." for reason in refused.values())
    assert not OPCODES.keys() & refused.keys()


@of(CONSTANT)
def test_it_is_interpreted_as_it_runs(program: Program) -> None:
    function = program.function
    assert differential.interpreted(function) == differential.executed(function)


@of([program for program in CONSTANT if program in MAY_BREAK])
def test_it_may_break_anywhere_without_torch(program: Program) -> None:
    expected = differential.executed(program.function)
    for step in differential.STEPS:
        result, _ = differential.broken(program.function, step)
        assert result == expected


@of(WHOLE)
def test_it_is_one_graph(program: Program) -> None:
    runners.whole(program)


@pytest.mark.dynamic(None)
@of(WHOLE)
def test_it_is_one_graph_of_symbolic_sizes(program: Program) -> None:
    runners.whole(program, dynamic=True)


@of(BREAKING)
def test_it_breaks_for_its_reason(program: Program) -> None:
    with pytest.raises(Unsupported) as refused:
        api.compile(program.function, backend="eager", fullgraph=True)(*program.calls[0])
    assert refused.value.reason == program.breaks, refused.value
    runners.in_pieces(program)


@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.thorough), 7])
@of(MAY_BREAK)
def test_it_may_break_anywhere(program: Program, step: int) -> None:
    runners.broken(program, step)


@of(PROGRAMS)
def test_a_change_of_the_world_is_seen(program: Program) -> None:
    runners.changed(program)


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
    assert result == {"different": {}, "count": len(CONSTANT), "unknown": []}
    assert python != sys.executable


@pytest.mark.parametrize("seed", [3, 20])
def test_sets_iterate_in_order_whatever_the_hashes_of_strings_are(seed: int) -> None:
    """Under these two seeds strings of the programs collide with numbers in tables of sets."""
    script = Path(__file__).with_name("without_torch.py")
    programs = ["order_of_sets", "order_of_sets_changed"]
    command = [sys.executable, "-B", str(script), str(REPOSITORY), *programs]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    finished = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=250, env=environment
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["different"] == {}
