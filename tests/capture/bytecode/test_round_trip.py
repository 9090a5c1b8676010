"""assemble(disassemble(code)) gives back every function of ten standard library modules."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

from fusewright.capture.bytecode import assemble, disassemble
from tools.interpreters import VERSIONS, find_interpreter

SCRIPT = Path(__file__).with_name("round_trip.py")
SOURCE_FOLDER = Path(__file__).parents[3] / "src"

_specification = importlib.util.spec_from_file_location("bytecode_round_trip", SCRIPT)
assert _specification is not None and _specification.loader is not None
round_trip = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(round_trip)

MODULES = (
    "argparse",
    "ast",
    "asyncio.base_events",
    "contextlib",
    "dataclasses",
    "_pydecimal",
    "inspect",
    "json.decoder",
    "tarfile",
    "typing",
    "unittest.mock",
)


@pytest.mark.parametrize("module_name", MODULES)
def test_every_part_comes_back(module_name: str) -> None:
    codes = list(round_trip.functions_of(module_name))
    assert len(codes) >= 5
    different = {
        code.co_qualname: parts for code in codes if (parts := round_trip.differences(code))
    }
    assert different == {}


OTHER_PYTHONS = [
    interpreter
    for version in VERSIONS
    if not sys.version.startswith(version) and (interpreter := find_interpreter(version))
]


@pytest.mark.skipif(not OTHER_PYTHONS, reason="no interpreter of another supported version found")
@pytest.mark.parametrize("python", OTHER_PYTHONS)
def test_every_part_comes_back_on_another_version(python: str) -> None:
    command = [python, "-I", "-W", "ignore", str(SCRIPT), str(SOURCE_FOLDER), *MODULES]
    finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert result["count"] > 500
    assert result["different"] == {}
    assert result["effects"] == []
    assert result["handling"] == []


def test_handlers_of_the_source_are_told_from_those_that_cpython_adds() -> None:
    assert round_trip.wrongly_handling() == []


def reassembled(function: types.FunctionType) -> types.FunctionType:
    """A function that runs the reassembled code of `function` in its place."""
    code = assemble(disassemble(function.__code__))
    copy = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def test_reassembled_code_runs_with_closures_and_generators() -> None:
    outside = [3]

    def program(first, /, second=2, *rest, keyword, **others):
        def inner(value):
            nonlocal first
            first += value
            return first

        def generate():
            try:
                for item in (*rest, second):
                    yield inner(item)
            finally:
                outside.append(len(others))

        with_values = {name: value for name, value in others.items() if value > keyword}
        return list(generate()), with_values, outside[0]

    arguments = ((1, 5, 6, 7), {"keyword": 0, "a": -1, "b": 1})
    expected = program(*arguments[0], **arguments[1])
    assert reassembled(program)(*arguments[0], **arguments[1]) == expected
    assert outside == [3, 2, 2]


def test_a_traceback_shows_the_users_line() -> None:
    def fails(value):
        prepared = value + 1
        return prepared / 0

    with pytest.raises(ZeroDivisionError) as raised:
        reassembled(fails)(1)
    entry = raised.traceback[-1]
    assert entry.lineno + 1 == fails.__code__.co_firstlineno + 2
    last = list(raised.tb.tb_next.tb_frame.f_code.co_positions())
    assert last == list(fails.__code__.co_positions())


def test_extended_arguments_and_long_jumps() -> None:
    names = [f"name_{number}" for number in range(700)]
    body = "".join(f"        total += {name}\n" for name in names)
    loop = f"    total = 0\n    while count:\n        count -= 1\n{body}"
    source = f"def program(count):\n{loop}    return total\n"
    namespace: dict[str, object] = dict.fromkeys(names, 1)
    exec(source, namespace)
    program = namespace["program"]
    assert isinstance(program, types.FunctionType)
    assert round_trip.differences(program.__code__) == []
    assert reassembled(program)(3) == 2100
