"""Golden tests: cases in text files, each an input and the output expected of it, re-blessed by one
command.

A case file holds cases like this one; a case's first lines may be comments (`# …`):

    === name of the case
    # what it shows
    the input
    ---
    the expected output

A test is a function from input to output:

    @golden("cases/round_trip.txt")
    def test_round_trip(text: str) -> str:
        return print_program(parse_program(text))

A `FusewrightError` that it raises becomes the output, behind `error: `. After a change that is
meant to change outputs, `python -m tests.bless [PATH ...]` writes what the tests now give into the
case files; read the diff before committing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusewright.errors import FusewrightError


@dataclass(frozen=True, slots=True)
class Case:
    """One input with its expected output."""

    path: Path
    name: str
    input: str
    expected: str


def read_cases(path: Path) -> list[Case]:
    """The cases of one file, in order. Names are unique in a file."""
    cases: list[Case] = []
    for block in path.read_text().split("=== ")[1:]:
        name, _, rest = block.partition("\n")
        given, _, expected = rest.partition("---\n")
        cases.append(Case(path, name.strip(), given, expected.rstrip("\n") + "\n"))
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), f"{path}: a case's name stands twice"
    assert cases, f"{path}: no cases"
    return cases


def write_expected(case: Case, output: str) -> None:
    """Put `output` in the place of what the file expects of `case`."""
    blocks = [
        _block(known, output if known.name == case.name else known.expected)
        for known in read_cases(case.path)
    ]
    case.path.write_text("\n".join(blocks))


def golden(file: str) -> Callable[[Callable[[str], str]], Callable[..., None]]:
    """Run the decorated function on every case of `file`, a path beside the test's own file."""

    def decorate(transform: Callable[[str], str]) -> Callable[..., None]:
        path = Path(transform.__code__.co_filename).parent / file
        cases = read_cases(path)

        @pytest.mark.golden
        @pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])
        def test(case: Case, bless: bool) -> None:
            output = _run(transform, case.input)
            if bless and output != case.expected:
                write_expected(case, output)
                return
            assert output == case.expected, "if this is meant: python -m tests.bless"

        return test

    return decorate


def _run(transform: Callable[[str], str], given: str) -> str:
    try:
        output = transform(given)
    except FusewrightError as error:
        output = f"error: {error}"
    return output.rstrip("\n") + "\n"


def _block(case: Case, expected: str) -> str:
    return f"=== {case.name}\n{case.input}---\n{expected}"
