"""Golden tests of passes by name: names of passes and a program in, the text after them out."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewright.context import CompileContext
from fusewright.ir.parse import parse_program
from fusewright.ir.program import Program
from fusewright.ir.text import print_schedule
from fusewright.optimizer import chosen_passes, limits_of_any, optimize
from fusewright.schedule import PASSES, schedule
from tests.golden import golden, read_cases
from tests.schedule.programs import programs
from tests.schedule.test_equivalence import assert_equivalent, relaxed

CASES = Path(__file__).parent / "cases" / "passes.txt"


def parts_of(text: str) -> tuple[tuple[str, ...], str]:
    """The passes of a case, as in `pass fuse, simplify`, and the program on the lines below."""
    head, _, program = text.partition("pass ")[2].partition("\n")
    names = tuple(head.split(", "))
    assert names == chosen_passes(names, None), "not the scheduler's order"
    return names, program


def text_after(names: tuple[str, ...], program: str) -> str:
    """The program or the steps after the last of some passes."""
    return optimize(program, names).after[-1][1]


@golden("cases/passes.txt")
def test_passes(text: str) -> str:
    return text_after(*parts_of(text))


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_has_a_case_that_it_changes_as_the_last(name: str) -> None:
    cases = [parts_of(case.input) for case in read_cases(CASES)]
    assert any(
        names[-1] == name and scheduled(names, program) != scheduled(names[:-1], program)
        for names, program in cases
        if "\nsteps\n" not in program
    )


def scheduled(names: tuple[str, ...], program: str) -> str:
    parsed = parse_program(program)
    return print_schedule(schedule(parsed, CompileContext(), limits_of_any, passes=names))


SOME: list[tuple[str, ...]] = [
    names for count in range(len(PASSES)) for names in combinations(PASSES, count)
]


@given(programs(), st.sampled_from(SOME))
@relaxed
def test_any_passes_compute_what_the_program_computes(
    program: Program, names: tuple[str, ...]
) -> None:
    assert_equivalent(program, schedule(program, CompileContext(), passes=names))
